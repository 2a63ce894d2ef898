// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Is it worth while to lock a stream's set and look for a block there?
//
// About what a set's placement holds, written under the set's lock and read without it.
//
// not for:   exact figures: what is read may be a moment old.

#include <cstddef>
#include <weir/base/threads/atomic.hpp>
#include <weir/contract/placement_slot.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Any thread may read, one at a time updates. `Tuning`: reuse::stream_ordered's.
template <class Tuning>
class free_hint {
public:
    /// What `free` holds, and so many bytes that will come to it.
    template <class Placement>
    void update(Placement const& free, std::size_t expected_bytes) noexcept {
        bytes_.store(free.free_bytes() + expected_bytes, base::memory_order_relaxed);
        if constexpr (contract::holds<contract::splinters, Placement>)
            splintered_.store(free.splinter_bytes() > Tuning::splinter_bytes, base::memory_order_relaxed);
    }

    std::size_t bytes() const noexcept { return bytes_.load(base::memory_order_relaxed); }
    /// Whether so many may be among them: what a placement counts as free may lack its slabs' tails, up to an eighth.
    bool may_hold(std::size_t bytes) const noexcept { return this->bytes() >= bytes - bytes / 8; }
    /// See Tuning::splinter_bytes.
    bool is_splintered() const noexcept { return splintered_.load(base::memory_order_relaxed); }

private:
    base::atomic<std::size_t> bytes_{0};
    base::atomic<bool> splintered_{false};
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
