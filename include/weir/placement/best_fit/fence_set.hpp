// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// fence_set: at which addresses must free ranges not join?
//
// Two chunks of the driver may lie side by side by chance. Were their free ranges joined, a block could
// straddle both, and neither could be given back. The start of each chunk is therefore a fence. Placements
// whose bytes may mix (one a stream) share one set.
//
// Joins ask all the time and fences are few, so that the answer is nearly always in one word: the alignment
// that all fences have in common. An address of a lesser alignment is no fence, and no lock is taken.
//
// invariant: 'coarse_' divides every fence in the set; it only falls until the set is empty again.
// order: an address must be added before a range that starts or ends there is given to any placement.
// cost: one relaxed load as a rule; a lock and a look-up at addresses as aligned as chunks are.
// not for: many fences at odd addresses.

#include <weir/base/address_map.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Any thread may call any member.
class fence_set {
public:
    /// Nothing joins across 'offset' from now on. Throws std::bad_alloc before any change.
    void insert(std::size_t offset) {
        base::lock_guard<base::spin_lock> const held(lock_);
        if (fences_.contains(key_of(offset)))
            return;
        fences_.insert(key_of(offset), 0);
        std::size_t const common = base::natural_alignment(coarse_.load(base::memory_order_relaxed) | offset);
        coarse_.store(common, base::memory_order_relaxed);
    }

    /// Ranges may join across 'offset' again. Nothing happens where there is no fence.
    void erase(std::size_t offset) noexcept {
        base::lock_guard<base::spin_lock> const held(lock_);
        fences_.erase(key_of(offset));
        if (fences_.empty())
            coarse_.store(0, base::memory_order_relaxed);
    }

    /// True when 'offset' is a fence.
    bool contains(std::size_t offset) const noexcept {
        std::size_t const coarse = coarse_.load(base::memory_order_relaxed);
        if (coarse == 0 ? offset != 0 : (offset & (coarse - 1)) != 0)
            return false;
        base::lock_guard<base::spin_lock> const held(lock_);
        return fences_.contains(key_of(offset));
    }

private:
    // Offset 0 is a fair fence in a test, and the map has no key 0; fences are never odd.
    static std::uint64_t key_of(std::size_t offset) noexcept { return offset | 1; }

    mutable base::spin_lock lock_;
    base::address_map fences_;
    base::atomic<std::size_t> coarse_{0};
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
