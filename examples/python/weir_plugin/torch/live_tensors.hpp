// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks does PyTorch have, and what is known of each?
//
// PyTorch frees by address alone. So the size, the stream and the private pool of each block are noted here.
//
// cost:      a hash look-up a call; 56 bytes of host memory a block, and some 26 to 51 for the look-up.

#include "version.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/base/address_map.hpp>

namespace weir_plugin::torch {

struct live_tensor {
    std::size_t address = 0;
    std::size_t requested_bytes = 0;
    std::size_t bytes = 0; // with rounding
    cudaStream_t stream = nullptr;
    mempool pool{0, 0};
    std::uint32_t site = 0; // in the recording, while there is one
    std::uint32_t tag = 0;  // whose pool it is of; 0: the ordinary one, or a private pool
};

/// Of one device. One thread at a time.
class live_tensors {
public:
    /// Notes a block. Throws std::bad_alloc before any change.
    void add(live_tensor const& fresh, context const& where) {
        if (where)
            contexts_[fresh.address] = where;
        if (unused_.empty()) {
            index_.reserve(all_.size() + 1);
            unused_.reserve(all_.size() + 1); // so that 'take' needs no memory
            all_.push_back(fresh);
            index_.insert(fresh.address, static_cast<std::uint32_t>(all_.size() - 1));
            return;
        }
        index_.reserve(index_.size() + 1);
        index_.insert(fresh.address, unused_.back());
        all_[unused_.back()] = fresh;
        unused_.pop_back();
    }

    /// What is known of the block at `p`; null: it is none.
    live_tensor const* find(void const* p) const noexcept {
        std::uint32_t const found = index_.find(reinterpret_cast<std::size_t>(p));
        return found == weir::base::address_map::none ? nullptr : &all_[found];
    }
    /// Takes the block off the notes. False: it is none.
    bool take(void const* p, live_tensor& gone) noexcept {
        std::uint32_t const found = index_.erase(reinterpret_cast<std::size_t>(p));
        if (found == weir::base::address_map::none)
            return false;
        gone = all_[found];
        unused_.push_back(found);
        if (!contexts_.empty())
            contexts_.erase(gone.address);
        return true;
    }

    context context_of(std::size_t address) const {
        auto const found = contexts_.find(address);
        return found == contexts_.end() ? context() : found->second;
    }
    std::unordered_map<std::size_t, context> const& contexts() const noexcept { return contexts_; }
    void forget_contexts() noexcept { contexts_.clear(); }

    /// All blocks, in no order. Throws std::bad_alloc.
    std::vector<live_tensor> list() const {
        std::vector<live_tensor> found;
        found.reserve(index_.size());
        visit([&](live_tensor const& each) { found.push_back(each); });
        return found;
    }
    template <class Act>
    void visit(Act const& act) const {
        index_.visit([&](std::uint64_t, std::uint32_t each) { act(all_[each]); });
    }
    std::size_t count() const noexcept { return index_.size(); }

private:
    std::vector<live_tensor> all_;
    std::vector<std::uint32_t> unused_; // places in it
    weir::base::address_map index_;
    std::unordered_map<std::size_t, context> contexts_; // while history is on
};

} // namespace weir_plugin::torch
