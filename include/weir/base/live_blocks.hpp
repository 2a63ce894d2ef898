// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks are handed out at this moment?
//
// They are in an array without gaps, in no order. A hash map from addresses says where in the array a block is. When a block
// leaves, the last one takes its place. Each has the number of its entry, so that all that came after a mark can leave at once.
// What is noted of a block besides is up to the layer that keeps the list.
//
// invariant: an address is in the list once.
// order:     none; a list belongs to one lock. A block must leave before it is freed, and enter after it was allocated.
// cost:      a hash look-up a call; 26 to 51 bytes of host memory for each block beside its own. 'leave_after' looks at all.
// not for:   what became of the blocks that left.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// A live block, and how many were entered by then, with it.
struct numbered_block : live_block {
    std::uint64_t number = 0;
};

/// `Block`: a numbered_block, or a class derived from it. Not thread-safe.
template <class Block = numbered_block>
class live_blocks {
public:
    /// Makes room for `blocks` in all, so that entering up to that many does not throw. Throws std::bad_alloc.
    void reserve(std::size_t blocks) {
        index_.reserve(blocks);
        if (blocks > blocks_.size())
            blocks_.reserve_more(blocks - blocks_.size());
    }

    /// Adds a block, whose address is not null. One that is listed at this address ends: the list did not learn of its free.
    /// Throws std::bad_alloc before any change.
    void enter(Block block) {
        block.number = entered_ + 1;
        if (Block* const old = find(block.address)) {
            *old = std::move(block);
        } else {
            reserve(blocks_.size() + 1);
            index_.insert(key(block), static_cast<std::uint32_t>(blocks_.size()));
            blocks_.push_back(std::move(block));
        }
        ++entered_;
    }

    /// The block at `address`; null if none is listed there.
    Block* find(void const* address) noexcept {
        std::uint32_t const at = index_.find(reinterpret_cast<std::uintptr_t>(address));
        return at == address_map::none ? nullptr : &blocks_[at];
    }
    Block const* find(void const* address) const noexcept { return const_cast<live_blocks*>(this)->find(address); }

    /// Takes a listed block off the list, and returns what it was.
    Block leave(Block& listed) noexcept {
        Block gone = std::move(listed);
        index_.erase(key(gone));
        if (&listed != &blocks_.back()) {
            listed = std::move(blocks_.back());
            index_.assign(key(listed), static_cast<std::uint32_t>(&listed - blocks_.data()));
        }
        blocks_.pop_back();
        return gone;
    }

    /// Takes all blocks off the list that came after the first `entered`, and calls note(block) for each.
    template <class Note>
    void leave_after(std::uint64_t entered, Note const& note) noexcept {
        for (std::size_t at = blocks_.size(); at-- > 0;)
            if (blocks_[at].number > entered)
                note(leave(blocks_[at]));
    }

    /// Offers all to the list of the largest.
    void offer_to(largest_blocks& list) const noexcept {
        for (Block const& each : blocks_)
            list.offer(each);
    }

    /// How many blocks were ever entered.
    std::uint64_t entered() const noexcept { return entered_; }

    std::size_t size() const noexcept { return blocks_.size(); }

    /// Those that are listed, in no order.
    Block* begin() noexcept { return blocks_.begin(); }
    Block* end() noexcept { return blocks_.end(); }
    Block const* begin() const noexcept { return blocks_.begin(); }
    Block const* end() const noexcept { return blocks_.end(); }

private:
    static std::uint64_t key(Block const& block) noexcept { return reinterpret_cast<std::uintptr_t>(block.address); }

    address_map index_; // address -> index into blocks_
    growing_array<Block> blocks_;
    std::uint64_t entered_ = 0;
};

} // namespace base
} // namespace v0
} // namespace weir
