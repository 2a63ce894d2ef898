// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Is it worthwhile to lock a stream's set and look for a block there?
//
// The hint tells roughly how many free bytes a set's placement holds. It is written under the set's lock and read without it.
//
// not for:   exact figures: what is read may be out of date by a moment.

#include <cstddef>
#include <weir/base/threads/atomic.hpp>
#include <weir/contract/placement_slot.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Any thread may read; one at a time may update. `Tuning`: reuse::stream_ordered's.
template <class Tuning>
class free_hint {
public:
    /// Notes what the placement `free` holds, and `expected_bytes` that will come to it.
    template <class Placement>
    void update(Placement const& free, std::size_t expected_bytes) noexcept {
        bytes_.store(free.free_bytes() + expected_bytes, base::memory_order_relaxed);
        if constexpr (contract::holds<contract::has_is_small, Placement>)
            splintered_.store(free.splinter_bytes() > Tuning::splinter_bytes, base::memory_order_relaxed);
    }

    std::size_t bytes() const noexcept { return bytes_.load(base::memory_order_relaxed); }
    /// Whether a block of `bytes` bytes may be among them. Up to an eighth may be missing in the count: the slabs' tails.
    bool may_hold(std::size_t bytes) const noexcept { return this->bytes() >= bytes - bytes / 8; }
    /// Whether many free bytes are splinters, that is, lie in slabs which serve one size each: see Tuning::splinter_bytes.
    bool is_splintered() const noexcept { return splintered_.load(base::memory_order_relaxed); }

private:
    base::atomic<std::size_t> bytes_{0};
    base::atomic<bool> splintered_{false};
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
