// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// arena: blocks one behind the other, freed all at once.
//
// A bump: a block is the next bytes of the current range, and when that is full, of the smallest later one that has
// room. Frees do nothing, but for the block taken last, which is handed out again. What ends blocks is 'rewind' to a
// mark, or 'clear'.
//
// invariant: ranges before the current one are used up, ranges after it are wholly free; no mark lies beyond what is taken.
// order: marks are rewound newest first; rewinding ends all marks made since.
// cost: take a few instructions, O(ranges) where a range is full; mark and rewind O(1) in the mean. 16 host bytes for each
//       mark with blocks behind it.
// not for: blocks that end in no order.

#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

#include <cstddef>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of blocks that end together. Not thread-safe. Only 'add' and 'mark' allocate host memory.
class arena {
public:
    /// Names a point in the order of taking.
    struct mark_type {
        std::size_t number = 0; ///< of marks before it
    };

    /// Bytes that take(bytes, alignment) occupies.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) noexcept { return bytes; }

    /// Bytes of a fresh range, at any multiple of 'base_alignment', in which take(bytes, alignment) succeeds; 0 on
    /// overflow.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        return with_slack(bytes, alignment, base_alignment);
    }

    /// The next bytes at a multiple of 'alignment' (a power of two), or range{}.
    range take(std::size_t bytes, std::size_t alignment) noexcept {
        if (bytes == 0)
            return {};
        if (!has_room(rest(), bytes, alignment) && !move_on(bytes, alignment))
            return {};
        range const block{align_up(rest().offset, alignment), bytes};
        at_.used = block.end() - ranges_[at_.index].offset;
        return block;
    }

    /// Nothing, unless it is the block that was taken last.
    void give(range block) noexcept {
        if (!block || at_.index >= ranges_.size() || !ranges_[at_.index].contains(block) || block.end() != rest().offset)
            return;
        at_.used = block.offset - ranges_[at_.index].offset;
        for (std::size_t i = marks_.size(); i-- > 0 && at_ < marks_[i];)
            marks_[i] = at_; // what takes its place came after the mark
    }

    /// Adds a range behind the others. Throws std::bad_alloc before any change.
    void add(range fresh) {
        if (fresh)
            ranges_.push_back(fresh);
    }

    /// Takes out exactly 'wanted', a range that was added, if it holds no block; else changes nothing and answers
    /// false. Marks stay good.
    bool remove(range wanted) noexcept {
        for (std::size_t at = at_.used == 0 ? at_.index : at_.index + 1; at < ranges_.size(); ++at)
            if (ranges_[at] == wanted) {
                ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(at));
                return true;
            }
        return false;
    }

    /// Where the next block would come from. Throws std::bad_alloc.
    mark_type mark() {
        if (marks_.empty() || marks_.back() < at_)
            marks_.push_back(at_);
        return mark_type{marks_.size() - 1};
    }

    /// Ends every block taken since the mark was made, also those in the place of blocks from before that were freed since.
    /// The mark stays good.
    void rewind(mark_type to) noexcept {
        if (to.number >= marks_.size())
            return; // an older one was rewound to
        at_ = marks_[to.number];
        while (marks_.size() > to.number + 1)
            marks_.pop_back();
    }

    /// Ends every block. Marks stay good: what is taken from now on came after them.
    void clear() noexcept {
        at_ = point{};
        for (point& each : marks_)
            each = at_;
    }

    /// Bytes that are not taken, in the current range and in later ones.
    std::size_t free_bytes() const noexcept {
        std::size_t sum = rest().bytes;
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            sum += ranges_[at].bytes;
        return sum;
    }

    /// Bytes of the largest block, of no special alignment, that a take gets now.
    std::size_t largest() const noexcept {
        std::size_t most = rest().bytes;
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            most = ranges_[at].bytes > most ? ranges_[at].bytes : most;
        return most;
    }

private:
    struct point {
        std::size_t index = 0; // ranges before the current one
        std::size_t used = 0;  // bytes of the current one that were taken

        bool operator<(point other) const noexcept { return index != other.index ? index < other.index : used < other.used; }
    };

    // What is left of the current range.
    range rest() const noexcept {
        if (at_.index == ranges_.size())
            return {};
        return {ranges_[at_.index].offset + at_.used, ranges_[at_.index].bytes - at_.used};
    }

    // The smallest later range with room becomes the current one; those passed over stay behind it, wholly free.
    bool move_on(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t best = ranges_.size();
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            if (has_room(ranges_[at], bytes, alignment) &&
                (best == ranges_.size() || ranges_[at].bytes < ranges_[best].bytes))
                best = at;
        if (best == ranges_.size())
            return false;
        // An unused current range is not used up: it changes places, and a mark at its start stays good.
        if (at_.used != 0)
            ++at_.index;
        std::swap(ranges_[best], ranges_[at_.index]);
        at_.used = 0;
        return true;
    }

    growing_array<range> ranges_;
    point at_; // the current range, one past the last where there is none, and bytes taken from its start
    growing_array<point> marks_; // where each is rewound to; none beyond 'at_'
};

} // namespace placement
} // namespace v0
} // namespace weir
