// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which freed blocks wait for work on other streams than the one that freed them?
//
// If 'used_on' said that other streams use a block, its free brings an event for each such use. The block is deferred: it
// stays here until all these events were reached.
//
// invariant: closed_bytes is the sum of the closed blocks' bytes. (A block is closed if an event of its own stream covers its
//            free.)
// cost:      a visit of n blocks asks CUDA O(log n) times for each of the first eight streams that use them, and once for
//            each use by any other stream.
// not for:   uses that are still being noted: order/second_uses.hpp.

#include <cstddef>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/order/stream_answers.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Events of uses; null: there are none. They are shared, so that one can wait for them without holding a lock.
using shared_uses = base::shared<base::growing_array<runtime::event>>;

struct deferred_block {
    base::range block;
    shared_uses uses; // the uses by other streams
    bool closed; // an event of the block's own stream covers its free, or its last use is among `uses`
    bool stock; // these bytes were lent from set to set: the placement never handed them out as a block

    /// Whether every use is over. Never blocks. Throws cuda_error.
    bool is_over(order::stream_answers& answers) const { return !uses || answers.all_reached(*uses); }
    /// Makes the stream wait for the uses, which are not over. Throws cuda_error.
    void make_wait(stream_ref stream) const {
        for (runtime::event const& use : *uses)
            use.make_wait(stream);
    }
};

/// One thread at a time.
class deferred_blocks {
public:
    /// Keeps a block and the events of its uses. Throws std::bad_alloc before any change.
    void add(base::range block, base::growing_array<runtime::event> uses, bool closed, bool stock) {
        auto kept = uses.empty() ? shared_uses() : shared_uses::make(std::move(uses));
        blocks_.push_back(deferred_block{block, std::move(kept), closed, stock});
        closed_bytes_ += closed ? block.bytes : 0;
    }

    /// Takes all blocks of the other. Throws std::bad_alloc before any change.
    void absorb(deferred_blocks& other) {
        if (blocks_.empty())
            blocks_.swap(other.blocks_);
        blocks_.reserve(blocks_.size() + other.blocks_.size());
        for (; !other.blocks_.empty(); other.blocks_.pop_back())
            blocks_.push_back(std::move(other.blocks_.back()));
        closed_bytes_ += std::exchange(other.closed_bytes_, std::size_t{0});
    }

    /// Asks CUDA about some of the blocks' uses, so that the answers tell of all. Few questions are enough if the blocks lie
    /// in the order of their uses, or in the opposite order. Never blocks. Throws cuda_error.
    order::stream_answers ask() const {
        order::stream_answers answers;
        std::size_t const places = empty() ? 0 : base::power_of_two_above(size());
        std::size_t at = 0;
        for (std::size_t i = 0; i != places; ++i) {
            if (at < size() && blocks_[at].uses)
                answers.learn(*blocks_[at].uses);
            std::size_t bit = places / 2;
            for (; (at & bit) != 0; bit /= 2)
                at ^= bit;
            at |= bit; // counting with reversed bits (van der Corput) halves gap after gap
        }
        return answers;
    }

    /// Takes out the blocks for which `take(deferred_block const&)` is true, and tells whether there were any. Throws what
    /// `take` throws.
    template <class Take>
    bool take_if(Take const& take) {
        std::size_t const before = blocks_.size();
        for (std::size_t i = before; i-- > 0;)
            if (take(blocks_[i])) {
                closed_bytes_ -= blocks_[i].closed ? blocks_[i].block.bytes : 0;
                base::swap_values(blocks_[i], blocks_.back());
                blocks_.pop_back();
            }
        return blocks_.size() != before;
    }

    /// Adds what the blocks wait for to `list`. Throws std::bad_alloc.
    void list_uses(base::growing_array<shared_uses>& list) const {
        for (deferred_block const& each : blocks_)
            if (each.uses)
                list.push_back(each.uses);
    }

    std::size_t closed_bytes() const noexcept { return closed_bytes_; }
    std::size_t open_bytes() const noexcept { ///< the bytes of the blocks that are not closed
        std::size_t sum = 0;
        for (deferred_block const& each : blocks_)
            sum += each.closed ? 0 : each.block.bytes;
        return sum;
    }
    std::size_t size() const noexcept { return blocks_.size(); }
    bool empty() const noexcept { return blocks_.empty(); }

private:
    base::growing_array<deferred_block> blocks_;
    std::size_t closed_bytes_ = 0;
};

/// Blocks until all events of the lists were reached, and tells whether any had not been. Throws cuda_error.
inline bool wait_for(base::growing_array<shared_uses> const& lists) {
    bool any = false;
    for (shared_uses const& list : lists)
        for (runtime::event const& each : *list)
            any |= each.wait();
    return any;
}

} // namespace reuse::detail
} // namespace v0
} // namespace weir
