// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which small blocks belong to no slab?
//
// As a rule a small block was cut from a slab and goes back there. Where memory is short some are loose: the large part cut
// such a block out by itself, or broke up its slab since. It goes back to the large part. The set knows where loose blocks
// start. Placements whose blocks may mix (one for each stream, for example) share one set.
//
// As a rule there are none, and one word says so. Another word says how large a slab may be, where a limit is known.
//
// invariant: of the blocks of a slab that was broken up, each is here or its bytes are the large part's. So a free block of a
//            slab is here exactly if a sibling broke that slab up.
// order:     locks itself. Only who has a block, or its free bytes, asks for it, so an answer stays true.
// cost:      one relaxed load where no block is loose; else a lock and a look-up. 26 to 51 host bytes a loose block.
// not for:   the blocks' bytes: the parts have those.

#include <weir/base/address_map.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Any thread may call any member.
class loose_blocks {
public:
    /// Whether there are any.
    bool any() const noexcept { return count_.load(base::memory_order_relaxed) != 0; }

    /// Whether the block that starts at 'offset' is loose.
    bool contains(std::size_t offset) const noexcept {
        base::lock_guard<base::spin_lock> const held(lock_);
        return starts_.contains(key_of(offset));
    }

    /// The block that starts at 'offset' is loose from now on. Throws std::bad_alloc before any change.
    void insert(std::size_t offset) { insert(offset, 0, 1, SIZE_MAX); }

    /// The same for 'blocks' blocks of 'block_bytes' bytes side by side, but not for the one that starts at 'except'.
    void insert(std::size_t offset, std::size_t block_bytes, std::size_t blocks, std::size_t except) {
        base::lock_guard<base::spin_lock> const held(lock_);
        starts_.reserve(starts_.size() + blocks);
        for (; blocks-- != 0; offset += block_bytes)
            if (offset != except)
                starts_.insert(key_of(offset), 0);
        count();
    }

    /// The block is loose no longer.
    void erase(std::size_t offset) noexcept {
        base::lock_guard<base::spin_lock> const held(lock_);
        starts_.erase(key_of(offset));
        count();
    }

    /// The most bytes of a slab. Larger blocks than fit such slabs are all loose.
    std::size_t most_slab_bytes() const noexcept { return most_slab_bytes_.load(base::memory_order_relaxed); }
    void most_slab_bytes(std::size_t bytes) noexcept { most_slab_bytes_.store(bytes, base::memory_order_relaxed); }

private:
    // The map has no key 0. Blocks start at multiples of 16 at least.
    static std::uint64_t key_of(std::size_t offset) noexcept { return offset | 1; }

    void count() noexcept { count_.store(starts_.size(), base::memory_order_relaxed); }

    mutable base::spin_lock lock_;
    base::address_map starts_;
    base::atomic<std::size_t> count_{0};
    base::atomic<std::size_t> most_slab_bytes_{SIZE_MAX};
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
