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
// cost: take a few instructions, O(ranges) where a range is full; mark and rewind O(1) in the mean; give O(ranges + marks
//       since the block). 56 host bytes for each mark with blocks behind it.
// not for: blocks that end in no order.

#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/usage.hpp>
#include <weir/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement {

/// Placement of blocks that end together. Not thread-safe. Only 'add' and 'mark' allocate host memory.
class arena {
public:
    /// Names a point in the order of taking.
    struct mark_type {
        std::size_t number = 0;   ///< of marks before it
        std::uint64_t serial = 0; ///< of those ever made: another took its place where they differ
    };

    /// Bytes that take(bytes, alignment) occupies.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) noexcept { return bytes; }

    /// Bytes of a fresh range, at any multiple of 'base_alignment', in which take(bytes, alignment) succeeds; 0 on
    /// overflow.
    static constexpr std::size_t needs(std::size_t bytes, std::size_t alignment,
                                       std::size_t base_alignment) noexcept {
        return base::with_slack(bytes, alignment, base_alignment);
    }

    /// The next bytes at a multiple of 'alignment' (a power of two), or range{}.
    base::range take(std::size_t bytes, std::size_t alignment) noexcept {
        if (bytes == 0)
            return {};
        if (!base::has_room(rest(), bytes, alignment) && !move_on(bytes, alignment))
            return {};
        base::range const block{base::align_up(rest().offset, alignment), bytes};
        at_.used = block.end() - ranges_[at_.index].offset;
        return block;
    }

    /// Nothing, unless it is the block that was taken last.
    void give(base::range block) noexcept {
        if (!marks_.empty())
            give_before_marks(block);
        if (!block || at_.index >= ranges_.size() || !ranges_[at_.index].contains(block) || block.end() != rest().offset)
            return;
        at_.used = block.offset - ranges_[at_.index].offset;
        for (std::size_t i = marks_.size(); i-- > 0 && at_ < marks_[i].here;)
            marks_[i].here = at_; // what takes its place came after the mark
    }

    /// Adds a range behind the others. Throws std::bad_alloc before any change.
    void add(base::range fresh) {
        if (fresh)
            ranges_.push_back(fresh);
    }

    /// Takes out exactly 'wanted', a range that was added, if it holds no block; else changes nothing and answers
    /// false. Marks stay good.
    bool remove(base::range wanted) noexcept {
        for (std::size_t at = at_.used == 0 ? at_.index : at_.index + 1; at < ranges_.size(); ++at)
            if (ranges_[at] == wanted) {
                ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(at));
                return true;
            }
        return false;
    }

    /// Where the next block would come from; `live`: the blocks that were taken and not given yet. Throws std::bad_alloc.
    mark_type mark(base::usage live = {}) {
        if (marks_.empty() || marks_.back().here < at_) {
            marks_.push_back(marked{at_, live, made_ + 1});
            ++made_;
        }
        return mark_type{marks_.size() - 1, marks_.back().serial};
    }

    /// Ends every block taken since the mark was made, also those in the place of blocks from before that were freed since.
    /// What is live then. The mark stays good; one that is newer than one that was rewound to is none, and 'live' stays.
    base::usage rewind(mark_type to, base::usage live = {}) noexcept {
        if (to.number >= marks_.size() || marks_[to.number].serial != to.serial)
            return live;
        while (marks_.size() > to.number + 1)
            marks_.pop_back();
        at_ = marks_.back().here;
        return marks_.back().live;
    }

    /// Ends every block. Marks stay good: what is taken from now on came after them.
    void clear() noexcept {
        at_ = point{};
        for (marked& each : marks_)
            each = marked{point{}, base::usage{}, each.serial};
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
    struct marked {
        point here;
        base::usage live; // of what was taken before
        std::uint64_t serial = 0;
    };

    // Counts a block off for the marks that came after it.
    void give_before_marks(base::range block) noexcept {
        std::size_t index = at_.index < ranges_.size() ? at_.index + 1 : ranges_.size();
        while (index != 0 && !ranges_[index - 1].contains(block))
            --index;
        if (index == 0)
            return; // none of these
        point const start{index - 1, block.offset - ranges_[index - 1].offset};
        for (std::size_t i = marks_.size(); i-- > 0 && start < marks_[i].here;) {
            marks_[i].live.gave(block);
            marks_[i].live.not_below_zero();
        }
    }

    // What is left of the current range.
    base::range rest() const noexcept {
        if (at_.index == ranges_.size())
            return {};
        return {ranges_[at_.index].offset + at_.used, ranges_[at_.index].bytes - at_.used};
    }

    // The smallest later range with room becomes the current one; those passed over stay behind it, wholly free.
    bool move_on(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t best = ranges_.size();
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            if (base::has_room(ranges_[at], bytes, alignment) &&
                (best == ranges_.size() || ranges_[at].bytes < ranges_[best].bytes))
                best = at;
        if (best == ranges_.size())
            return false;
        // An unused current range is not used up: it changes places, and a mark at its start stays good.
        if (at_.used != 0)
            ++at_.index;
        base::swap_values(ranges_[best], ranges_[at_.index]);
        at_.used = 0;
        return true;
    }

    base::growing_array<base::range> ranges_;
    point at_; // the current range, one past the last where there is none, and bytes taken from its start
    base::growing_array<marked> marks_; // what each is rewound to; none beyond 'at_'
    std::uint64_t made_ = 0;      // marks, ever
};

} // namespace placement
} // namespace v0
} // namespace weir
