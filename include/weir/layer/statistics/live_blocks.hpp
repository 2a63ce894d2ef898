// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks are handed out at this moment?
//
// They are in an array without gaps, in no order. A hash map from addresses says where in the array a block is. When a block
// leaves, the last one takes its place. Each has the number of its entry, so that all that came after a mark can leave at once.
//
// invariant: an address is in the list once.
// order:     one mutex. A block must leave the list before it is freed, and enter it after it was allocated.
// cost:      a mutex and a hash look-up a call; about 60 bytes of host memory for each block that is handed out.
//            'leave_after' looks at all of them.
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
    /// Adds a block, whose address is not null. If the host has no memory for that, the block is left out.
    void enter(void const* address, std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        auto const key = reinterpret_cast<std::uintptr_t>(address);
        if (std::uint32_t const at = index_.find(key); at != base::address_map::none) {
            blocks_[at] = entry{{address, bytes}, ++entered_}; // this list did not learn of its free, of another size
            return;
        }
        try {
            index_.reserve(blocks_.size() + 1);
            blocks_.push_back(entry{{address, bytes}, entered_ + 1});
        } catch (...) { // a report may lack a block; that is no failure
            return;
        }
        ++entered_;
        index_.insert(key, static_cast<std::uint32_t>(blocks_.size() - 1));
    }

    /// Removes a block from the list, if it is there.
    void leave(void const* address) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        std::uint32_t const at = index_.erase(reinterpret_cast<std::uintptr_t>(address));
        if (at != base::address_map::none)
            drop(at);
    }

    /// How many blocks were ever entered.
    std::uint64_t entered() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return entered_;
    }

    /// Removes all blocks that came after the first `entered`.
    void leave_after(std::uint64_t entered) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        for (std::size_t at = blocks_.size(); at-- > 0;)
            if (blocks_[at].number > entered) {
                index_.erase(reinterpret_cast<std::uintptr_t>(blocks_[at].block.address));
                drop(at);
            }
    }

    /// Offers all listed blocks to `list`, which keeps the largest.
    void offer_to(largest_blocks& list) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        for (entry const& each : blocks_)
            list.offer(each.block);
    }

private:
    struct entry {
        live_block block;
        std::uint64_t number; // how many were entered by then, with it
    };

    // The last block takes the place of one that has left the index.
    void drop(std::size_t at) noexcept {
        if (at + 1 != blocks_.size()) {
            blocks_[at] = blocks_.back();
            index_.assign(reinterpret_cast<std::uintptr_t>(blocks_[at].block.address), static_cast<std::uint32_t>(at));
        }
        blocks_.pop_back();
    }

    mutable base::mutex mutex_;
    base::address_map index_; // address -> index into blocks_
    base::growing_array<entry> blocks_;
    std::uint64_t entered_ = 0;
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
