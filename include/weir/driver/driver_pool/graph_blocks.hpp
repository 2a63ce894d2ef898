// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks that CUDA's pool handed out belong to a graph?
//
// A block that a captured stream allocates belongs to its graph: each launch allocates it again at the same address, and it may
// be freed once a launch. So its address is kept, with the capture. Of the pool's own blocks nothing is kept.
//
// invariant: a graph's block stays known until its graph frees it itself, or the pool hands the same address out again.
// order:     none: every member is one step under a lock, or one load.
// cost:      one relaxed load while no graph has a block; else a lock and a look-up.
// not for:   sizes: the caller knows them.

#include <cstddef>
#include <cstdint>
#include <weir/base/address_map.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// Any thread may call any member.
class graph_blocks {
public:
    /// Whether no graph has a block.
    bool empty() const noexcept { return count_.load(base::memory_order_relaxed) == 0; }

    /// Whether the block at `p` is a graph's.
    bool has(void* p) const noexcept {
        if (empty())
            return false;
        base::lock_guard<base::mutex> const lock(mutex_);
        return captures_.contains(key_of(p));
    }

    /// Notes that the block at `p`, which was just handed out, belongs to the graph of the capture with the id `capture`; 0:
    /// to the pool. Throws std::bad_alloc, but not for the pool.
    void note(void* p, std::uint64_t capture) {
        if (capture == 0 && empty())
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        captures_.erase(key_of(p)); // left over from a graph that is gone
        if (capture != 0)
            captures_.insert(key_of(p), short_of(capture));
        count_.store(captures_.size(), base::memory_order_relaxed);
    }

    /// Notes that the graph of the capture `capture` frees the block. If that graph owns it, nobody else will free it, and it
    /// is forgotten.
    void freed_by(std::uint64_t capture, void* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (captures_.find(key_of(p)) == short_of(capture))
            captures_.erase(key_of(p));
        count_.store(captures_.size(), base::memory_order_relaxed);
    }

private:
    static std::uintptr_t key_of(void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }
    // A short name of a capture: a capture is taken for an earlier one only if 2^31 others began in between.
    static std::uint32_t short_of(std::uint64_t capture) noexcept { return static_cast<std::uint32_t>(capture & 0x7fffffff); }

    mutable base::mutex mutex_;
    base::address_map captures_; // address -> which capture's graph owns the block
    base::atomic<std::size_t> count_{0};
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
