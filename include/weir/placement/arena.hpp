// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// arena: blocks one behind the other, freed all at once.
//
// A block is the next bytes of the current range. When that is full, the smallest later range that has room becomes the
// current one. A free does nothing, except for the block that was taken last: its bytes are handed out again. All other
// blocks end together, by 'rewind' to a mark or by 'clear'. A mark is a point in the order of taking; to rewind to it ends
// all blocks that were taken after it.
//
// invariant: ranges before the current one are used up, ranges after it are wholly free; no mark lies beyond what is taken.
// order:     rewind to the newest mark first; rewinding to a mark invalidates all newer marks.
// cost:      take: a few instructions, O(ranges) when a range is full. mark and rewind: O(1) on average. give: O(ranges +
//            marks made since the block was taken). 56 host bytes for each mark that has blocks before the next mark.
// not for:   blocks that end in any order.

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
    /// Names a point in the order in which blocks are taken.
    struct mark_type {
        std::size_t number = 0;   ///< how many marks were made before it and still exist
        std::uint64_t serial = 0; ///< its number among all marks ever made; if it differs, a newer mark took its place
    };

    /// Bytes that take(bytes, alignment) occupies.
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) noexcept { return bytes; }

    /// The bytes that a fresh range needs so that take(bytes, alignment) succeeds in it, if it may start at any multiple of
    /// 'base_alignment'; 0 on overflow.
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

    /// Does nothing, unless it is the block that was taken last: then its bytes are free again.
    void give(base::range block) noexcept {
        if (!marks_.empty())
            give_before_marks(block);
        if (!block || at_.index >= ranges_.size() || !ranges_[at_.index].contains(block) || block.end() != rest().offset)
            return;
        at_.used = block.offset - ranges_[at_.index].offset;
        for (std::size_t i = marks_.size(); i-- > 0 && at_ < marks_[i].here;)
            marks_[i].here = at_; // what takes its place came after the mark
    }

    /// Adds a range after the others. Throws std::bad_alloc before any change.
    void add(base::range fresh) {
        if (fresh)
            ranges_.push_back(fresh);
    }

    /// Removes exactly 'wanted', a range that was added, if it holds no block. Otherwise changes nothing and returns false.
    /// Marks stay valid.
    bool remove(base::range wanted) noexcept {
        for (std::size_t at = at_.used == 0 ? at_.index : at_.index + 1; at < ranges_.size(); ++at)
            if (ranges_[at] == wanted) {
                ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(at));
                return true;
            }
        return false;
    }

    /// Marks the point that was reached. `live`: the counts of the blocks that are taken and not yet given back. Throws
    /// std::bad_alloc.
    mark_type mark(base::usage live = {}) {
        if (marks_.empty() || marks_.back().here < at_) {
            marks_.push_back(marked{at_, live, made_ + 1});
            ++made_;
        }
        return mark_type{marks_.size() - 1, marks_.back().serial};
    }

    /// Ends every block that was taken after the mark, also a block that reused the bytes of an older one. Returns the counts
    /// of the blocks that are live then. The mark stays valid, and newer marks become invalid. To rewind to an invalid mark
    /// does nothing and returns 'live'.
    base::usage rewind(mark_type to, base::usage live = {}) noexcept {
        if (to.number >= marks_.size() || marks_[to.number].serial != to.serial)
            return live;
        while (marks_.size() > to.number + 1)
            marks_.pop_back();
        at_ = marks_.back().here;
        return marks_.back().live;
    }

    /// Ends every block. Marks stay valid; they count as made before all later blocks.
    void clear() noexcept {
        at_ = point{};
        for (marked& each : marks_)
            each = marked{point{}, base::usage{}, each.serial};
    }

    /// Bytes that are free, in the current range and in later ones.
    std::size_t free_bytes() const noexcept {
        std::size_t sum = rest().bytes;
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            sum += ranges_[at].bytes;
        return sum;
    }

    /// Bytes of the largest block, of no special alignment, that a take can get now.
    std::size_t largest() const noexcept {
        std::size_t most = rest().bytes;
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            most = ranges_[at].bytes > most ? ranges_[at].bytes : most;
        return most;
    }

private:
    struct point {
        std::size_t index = 0; // how many ranges lie before the current one
        std::size_t used = 0;  // bytes of the current one that are taken

        bool operator<(point other) const noexcept { return index != other.index ? index < other.index : used < other.used; }
    };
    struct marked {
        point here;
        base::usage live; // the counts of the blocks that were taken before
        std::uint64_t serial = 0;
    };

    // A block was given back: marks that were made after it count one live block less.
    void give_before_marks(base::range block) noexcept {
        std::size_t index = at_.index < ranges_.size() ? at_.index + 1 : ranges_.size();
        while (index != 0 && !ranges_[index - 1].contains(block))
            --index;
        if (index == 0)
            return; // it lies in no range of this arena
        point const start{index - 1, block.offset - ranges_[index - 1].offset};
        for (std::size_t i = marks_.size(); i-- > 0 && start < marks_[i].here;) {
            marks_[i].live.gave(block);
            marks_[i].live.not_below_zero();
        }
    }

    // The free rest of the current range.
    base::range rest() const noexcept {
        if (at_.index == ranges_.size())
            return {};
        return {ranges_[at_.index].offset + at_.used, ranges_[at_.index].bytes - at_.used};
    }

    // Makes the smallest later range that has room the current one. Ranges that are passed over stay behind it, wholly free.
    bool move_on(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t best = ranges_.size();
        for (std::size_t at = at_.index + 1; at < ranges_.size(); ++at)
            if (base::has_room(ranges_[at], bytes, alignment) &&
                (best == ranges_.size() || ranges_[at].bytes < ranges_[best].bytes))
                best = at;
        if (best == ranges_.size())
            return false;
        // An unused current range is not used up. The two change places, so a mark at its start stays valid.
        if (at_.used != 0)
            ++at_.index;
        base::swap_values(ranges_[best], ranges_[at_.index]);
        at_.used = 0;
        return true;
    }

    base::growing_array<base::range> ranges_;
    point at_; // the index of the current range (ranges_.size() if there is none), and the bytes taken from its start
    base::growing_array<marked> marks_; // what each mark rewinds to; none lies beyond 'at_'
    std::uint64_t made_ = 0;      // how many marks were ever made
};

} // namespace placement
} // namespace v0
} // namespace weir
