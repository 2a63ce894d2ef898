// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks are out now?
//
// A list without gaps, in no order, and a hash of the addresses that says where in it a block is; the last takes the
// place of one that goes.
//
// invariant: an address is in the list once.
// order:     one mutex; a block must leave before its free, and enter after its allocation.
// cost:      a mutex and a hash look-up a call; about 50 bytes of host memory for a block that is out.
// not for:   catching wrong frees: see layer::guard.

#include <cstddef>
#include <cstdint>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/threads/mutex.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

/// Any thread may call any member; none throws.
class live_blocks {
public:
    /// Lists a block, which is not null; not where the host has no memory for that.
    void enter(void const* address, std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        auto const key = reinterpret_cast<std::uintptr_t>(address);
        if (std::uint32_t const at = index_.find(key); at != base::address_map::none) {
            blocks_[at].bytes = bytes; // its free came with another size, and was not heard of
            return;
        }
        try {
            index_.reserve(blocks_.size() + 1);
            blocks_.push_back(live_block{address, bytes});
        } catch (...) { // the list is for reports: a block that it lacks is no failure
            return;
        }
        index_.insert(key, static_cast<std::uint32_t>(blocks_.size() - 1));
    }

    /// Takes a block off the list, if it is there.
    void leave(void const* address) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        std::uint32_t const at = index_.erase(reinterpret_cast<std::uintptr_t>(address));
        if (at == base::address_map::none)
            return;
        if (at + 1 != blocks_.size()) {
            blocks_[at] = blocks_.back();
            index_.assign(reinterpret_cast<std::uintptr_t>(blocks_[at].address), at);
        }
        blocks_.pop_back();
    }

    /// Offers all of them.
    void offer_to(largest_blocks& list) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        for (live_block const& each : blocks_)
            list.offer(each);
    }

private:
    mutable base::mutex mutex_;
    base::address_map index_; // address -> index into blocks_
    base::growing_array<live_block> blocks_;
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
