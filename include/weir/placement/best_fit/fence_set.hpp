// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// fence_set: at which addresses must free ranges not join?
//
// Two chunks from the driver may lie side by side by chance. If their free ranges joined, a block could lie across both, and
// neither chunk could be given back. So the start of each chunk is a fence: free ranges do not join across it. Placements
// whose bytes may mix (one for each stream, for example) share one set of fences.
//
// Joins ask all the time, and fences are few. One word answers nearly always: it has the alignment that all fences have in
// common. An address that is aligned less is no fence, and no lock is taken.
//
// invariant: 'coarse_', the common alignment, divides every fence in the set; it only becomes smaller until the set is empty
//            again.
// order:     an address must be added before a range that starts or ends there is given to any placement.
// cost:      one relaxed load as a rule; a lock and a look-up at addresses that are aligned as chunks are.
// not for:   many fences at odd addresses.

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
    /// Makes 'offset' a fence. Throws std::bad_alloc before any change.
    void insert(std::size_t offset) {
        base::lock_guard<base::spin_lock> const held(lock_);
        if (fences_.contains(key_of(offset)))
            return;
        fences_.insert(key_of(offset), 0);
        std::size_t const common = base::natural_alignment(coarse_.load(base::memory_order_relaxed) | offset);
        coarse_.store(common, base::memory_order_relaxed);
    }

    /// Removes the fence at 'offset', if there is one: ranges may join there again.
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
    // A test may have a fence at offset 0, but the map allows no key 0. Fences are never odd, so setting the lowest bit is
    // safe.
    static std::uint64_t key_of(std::size_t offset) noexcept { return offset | 1; }

    mutable base::spin_lock lock_;
    base::address_map fences_;
    base::atomic<std::size_t> coarse_{0};
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
