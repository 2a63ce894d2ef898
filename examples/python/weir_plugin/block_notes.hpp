// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks are a private pool's, and which others does one use?
//
// invariant: a block is noted from the moment that it is a private pool's, or used by a second stream, to its free.
// cost:      a hash look-up.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weir_plugin {

/// A block of a private pool, as its owner knows it.
struct live_block {
    void* p = nullptr;
    std::size_t bytes = 0;
    cudaStream_t stream = nullptr;
};

/// One thread at a time.
template <class Pool>
class block_notes {
public:
    struct note {
        Pool* of = nullptr; // null: the ordinary pool's
        std::size_t bytes = 0;
        cudaStream_t stream = nullptr;
        bool shared = false;          // with another stream of its captures
        std::set<Pool*> users;        // others that use it
        std::set<cudaStream_t> marks; // other streams that use it, outside of captures
    };

    /// What is noted of the block at `p`; an empty note: nothing.
    note known(void* p) const {
        auto const found = all_.find(p);
        return found == all_.end() ? note{} : found->second;
    }
    void set(void* p, note fresh) { all_[p] = std::move(fresh); }
    void erase(void* p) noexcept { all_.erase(p); }

    /// The live blocks of `pool`.
    std::vector<live_block> of(Pool const* pool) const {
        std::vector<live_block> found;
        for (auto const& [p, each] : all_)
            if (each.of == pool)
                found.push_back({p, each.bytes, each.stream});
        return found;
    }
    /// Before a pool goes: no note names it any more.
    void forget(Pool& gone) {
        for (auto each = all_.begin(); each != all_.end();) {
            bool const named = each->second.users.erase(&gone) != 0;
            bool const plain = !each->second.of && each->second.users.empty() && each->second.marks.empty();
            each = named && plain ? all_.erase(each) : std::next(each);
        }
    }
    std::size_t size() const noexcept { return all_.size(); }

private:
    std::unordered_map<void*, note> all_;
};

} // namespace weir_plugin
