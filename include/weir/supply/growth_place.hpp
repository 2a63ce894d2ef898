// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where can a pool grow in place with the least new memory?
//
// It can grow behind each chunk that is followed by a gap: addresses that no chunk has. Free bytes at the end of that chunk
// count towards the block. If the gap is too small for the rest, free bytes behind the gap count as well. A block of 100 MiB
// that finds 60 MiB free at the end of the last chunk needs 40 MiB more, and one that finds a gap of 10 MiB between free bytes
// needs 10.
//
// invariant: with `bytes` more bytes at `end` a block of the wanted size and alignment fits.
// cost:      O(chunks), and two look-ups for each gap.
// not for:   how much to get beyond that: growth policies say.

#include <cstddef>
#include <cstdint>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/supply/chunk_list.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// A place to grow.
struct growth_place {
    std::size_t end = 0;       ///< the end of the chunk to grow behind; 0: there is no place
    std::size_t bytes = 0;     ///< of memory needed behind `end`
    std::size_t gap_bytes = 0; ///< of addresses behind `end` that no chunk has
    base::range counted;       ///< the free bytes that count, before and behind, with the gap between

    /// Notes that `more` bytes of memory were put at `end`.
    void advance(std::size_t more) noexcept {
        end += more;
        gap_bytes -= more;
        bytes = bytes > more ? bytes - more : 0;
    }
};

/// A `reach` without a bound: every address behind a chunk can have memory.
struct any_reach {
    constexpr std::size_t operator()(std::size_t end) const noexcept { return SIZE_MAX - end; }
};

/// The place for a block of `bytes` bytes at a multiple of `alignment` that needs the least memory, in multiples of `page`.
/// `free`: a placement that knows what is free before and after an address. `reach`: tells how many bytes of addresses behind
/// the end of a chunk can have memory; it is asked where the next chunk does not follow at once.
template <class Placement, class Reach = any_reach>
growth_place cheapest_growth_place(chunk_list const& chunks, Placement const& free, std::size_t bytes, std::size_t alignment,
                                   std::size_t page, Reach const& reach = {}) noexcept {
    growth_place best;
    for (base::range const* each = chunks.begin(); each != chunks.end(); ++each) {
        base::range const* const next = each + 1;
        bool const is_last = next == chunks.end();
        std::size_t const end = each->end();
        if (!is_last && next->offset == end)
            continue;
        std::size_t const tail = free.free_before(end);
        std::size_t const start = base::align_up(end - tail, alignment);
        std::size_t const block_end = start + bytes;
        if (block_end <= end || block_end < bytes || start < end - tail) // it would fit already, or nowhere
            continue;
        std::size_t needed = base::align_up(block_end - end, page);
        std::size_t const within_reach = reach(end);
        bool const next_is_behind = !is_last && next->offset - end < within_reach;
        std::size_t const gap = next_is_behind ? next->offset - end : within_reach;
        if (needed > gap) {
            if (!next_is_behind || block_end - end > gap + free.free_after(next->offset))
                continue;
            needed = gap;
        }
        if (best.end == 0 || needed < best.bytes || (needed == best.bytes && gap < best.gap_bytes))
            best = growth_place{end, needed, gap, base::range{end - tail, tail + (needed == gap ? block_end - end : needed)}};
    }
    return best;
}

} // namespace supply
} // namespace v0
} // namespace weir
