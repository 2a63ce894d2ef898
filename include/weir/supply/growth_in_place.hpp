// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool grow right behind a chunk, with as little new memory as it can?
//
// A block that found no room takes the free bytes at the end of some chunk, and only what it lacks there is got. The steps:
//   1. the place: behind which chunk does the block lack least (growth_place.hpp)?
//   2. how much to move: memory of wholly free chunks elsewhere can be put there instead of new memory. Slack says how much
//      should (slack.hpp), which is none while the pool holds little more than was ever in use.
//   3. new memory: what will be lacking then is got first, so that nothing has moved if there is none. If there is none, step 2
//      is taken again with all that can move.
//   4. the move: chunk after chunk. What does not fit at the place goes back instead, so that as much can be got (5).
//   5. the rest: what is lacking still is got.
//
// invariant: a chunk moves only when no work uses any byte of it; if step 3 fails nothing has changed.
// order:     one thread at a time.
// cost:      driver calls, and O(chunks) for each.
// not for:   chunks of their own: see chunk_supply.hpp.

#include <cstddef>
#include <weir/base/hole_watch.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/supply/chunk_sizes.hpp>
#include <weir/supply/growth_place.hpp>
#include <weir/supply/movable_chunks.hpp>
#include <weir/supply/slack.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// `Free`: the pool's free_chunks.
template <class Placement, class Growth, class Free>
class growth_in_place {
    static constexpr std::size_t page = Free::page;
    using sizes_of = chunk_sizes<Growth, page>;

public:
    /// Gets room for such a block behind a chunk, for `stream` first. False: no place takes less memory than a chunk of the
    /// block's own would, or there is no memory. Throws what the upstream and the rule throw.
    bool grow(Free const& free, std::size_t bytes, std::size_t alignment, stream_ref stream) {
        std::size_t const block_bytes = Placement::needs(bytes, alignment, page);
        growth_place place = best_place(free, bytes, alignment, block_bytes, stream);
        if (place.end == 0)
            return false;
        movable_chunks movable = free.list(place.counted);
        std::size_t const all = movable.bytes();
        std::size_t const in_use = free.rule().used().bytes + block_bytes;
        holes_ = watch_.note(free.held().bytes() - all, in_use);
        std::size_t const wanted = base::align_up(slack_.bytes_to_move(free.held().bytes(), place.bytes, in_use), page);
        std::size_t to_move = wanted < all ? wanted : all;
        // At the limit and on a full device slack does not help: then all wholly free chunks move.
        if (!get_before_moving(free, place, to_move, stream) &&
            (to_move == all || !get_before_moving(free, place, to_move = all, stream)))
            return false;
        move(free, place, to_move, movable, stream);
        if (place.bytes != 0 && !extend(free, place.end, place.bytes, stream))
            return false; // somebody else got what went back
        slack_.note_use(in_use);
        return true;
    }

    /// Whether the pool's free memory lay in holes when it grew last.
    base::holes holes() const noexcept { return holes_; }

    /// Forgets how much was ever in use, and what was moved.
    void start_anew() noexcept { *this = growth_in_place(); }

private:
    growth_place best_place(Free const& free, std::size_t bytes, std::size_t alignment, std::size_t block_bytes,
                            stream_ref stream) const {
        // A small block is cut from a larger piece, which is aligned to its own size.
        std::size_t const least = alignment > Placement::granularity ? alignment : Placement::granularity;
        bool const is_cut = block_bytes != Placement::rounded(bytes, alignment);
        std::size_t const aligned = is_cut ? base::natural_alignment(block_bytes) : least;
        growth_place best;
        free.rule().visit_usable(stream, [&](Placement& usable) {
            best = cheapest_growth_place(free.held().chunks(), usable, block_bytes, aligned, page,
                                         [&](std::size_t end) { return free.held().addresses_behind(end); });
        });
        return best;
    }

    // Gets what the place lacks beyond the `to_move` bytes that are to move there.
    bool get_before_moving(Free const& free, growth_place& place, std::size_t to_move, stream_ref stream) const {
        if (place.bytes <= to_move)
            return true;
        std::size_t const needed = place.bytes - to_move;
        std::size_t got = sizes(free).next(needed);
        if (got <= needed || got > place.gap_bytes || !extend(free, place.end, got, stream))
            got = extend(free, place.end, needed, stream) ? needed : 0;
        place.advance(got);
        return got != 0;
    }

    // Moves wholly free chunks, of about `bytes` bytes, to the place. As much as did not move goes back.
    void move(Free const& free, growth_place& place, std::size_t bytes, movable_chunks& movable, stream_ref stream) {
        std::size_t const before = free.held().bytes();
        std::size_t moved = 0;
        while (moved < bytes) {
            movable_chunk const next = movable.next(bytes - moved, place.gap_bytes);
            if (!next.chunk)
                break;
            if (!free.try_take(next.chunk, next.free_from))
                continue;
            movable.gone(next);
            if (!free.held().move(next.chunk, place.end)) {
                free.held().release(next.chunk);
                break; // the others would not move either
            }
            moved += next.chunk.bytes;
            free.add(base::range{place.end, next.chunk.bytes}, stream, true);
            place.advance(next.chunk.bytes);
        }
        std::size_t const left = bytes > moved ? bytes - moved : 0;
        free.give_back(before > left ? before - left : 0, place.counted);
        slack_.note_moved(moved + before - free.held().bytes(), before);
    }

    bool extend(Free const& free, std::size_t end, std::size_t bytes, stream_ref stream) const {
        return free.add(free.held().extend(end, bytes, sizes(free).piece_of(bytes)), stream, true);
    }

    sizes_of sizes(Free const& free) const noexcept {
        return sizes_of{free.held().bytes(), free.held().limit_bytes(), true, holes_};
    }

    slack slack_{sizes_of::moved_percent()};
    base::hole_watch watch_;
    base::holes holes_ = base::holes::never;
};

} // namespace supply
} // namespace v0
} // namespace weir
