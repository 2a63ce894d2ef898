// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much does a pool ask for, and in chunks of which size?
//
// What its growth policy says, for what the pool holds, the holes that it saw, and its limit: a limit says how much there
// will be, and chunks that are small beside it leave little unused below it. Policies that cut no pieces, and devices that
// cannot grow in place, get one chunk at a time.
//
// invariant: next(bytes) >= bytes, but 0 where it overflows; 0 < piece_of(bytes) <= bytes where bytes is not 0.
// cost:      arithmetic.
// not for:   whether there is room.

#include <cstddef>
#include <cstdint>
#include <weir/base/hole_watch.hpp>
#include <weir/base/size.hpp>
#include <weir/contract/growth_slot.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// Answers are multiples of `Page` bytes; of piece_of, where the question is.
template <class Growth, std::size_t Page>
struct chunk_sizes {
    std::size_t held_bytes = 0;
    std::size_t limit_bytes = SIZE_MAX;
    bool grows_in_place = false;
    base::holes seen = base::holes::never;

    /// What part of the chunks may move until slack doubles (slack.hpp), in per cent.
    static constexpr unsigned moved_percent() noexcept {
        if constexpr (cuts)
            return Growth::moved_percent;
        return 200;
    }

    /// How much to ask for where so much is needed.
    std::size_t next(std::size_t bytes) const noexcept {
        if constexpr (cuts) {
            if (!grows_in_place)
                return base::align_up(Growth::apart::next(bytes, held_bytes), Page);
            // Where there were holes, others may come: what is got without need could not be moved then.
            std::size_t const least = usual_piece(bytes, seen == base::holes::never ? base::holes::never : base::holes::now);
            return base::align_up(bytes > least ? bytes : least, Page);
        }
        return base::align_up(Growth::next(bytes, held_bytes), Page);
    }

    /// The bytes of each chunk of so many.
    std::size_t piece_of(std::size_t bytes) const noexcept {
        if constexpr (cuts) {
            if (!grows_in_place)
                return bytes;
            std::size_t const piece = usual_piece(bytes, seen);
            std::size_t const least = base::align_up(bytes / most_pieces, Page);
            std::size_t const larger = piece > least ? piece : least;
            return larger < bytes ? larger : bytes;
        }
        return bytes;
    }

private:
    static constexpr bool cuts = contract::holds<contract::cuts_pieces, Growth>;
    static constexpr std::size_t most_pieces = 1024; // at a time: each costs tens of microseconds
    static constexpr std::size_t pieces_of_a_limit = 512;

    std::size_t usual_piece(std::size_t bytes, base::holes now) const noexcept {
        std::size_t const held = base::add_overflows(held_bytes, bytes) ? SIZE_MAX : held_bytes + bytes;
        std::size_t const piece = base::align_up(Growth::piece(held, now), Page);
        std::size_t const most = limit_bytes / pieces_of_a_limit / Page * Page;
        return piece <= most ? piece : most < Page ? Page : most;
    }
};

} // namespace detail
} // namespace v0
} // namespace weir
