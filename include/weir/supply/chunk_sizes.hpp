// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much does a pool ask its upstream for, and in chunks of which size?
//
// The growth policy decides, from three things: what the pool holds, whether holes were seen (free memory in pieces too small
// to be used, base/hole_watch.hpp), and the pool's limit. Memory that grows in place comes in pieces, each a chunk of its own.
// Under a limit no piece is larger than a 512th of it: small chunks leave little unused below the limit. Policies that cut no
// pieces, and devices that cannot grow in place, get one chunk at a time. Under a limit a chunk has no bytes that equal blocks
// would leave unused, so in a fresh pool a limit that is the sum of equal blocks has room for all of them.
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
namespace supply {

/// All answers are multiples of `Page` bytes; that of piece_of is one if its argument is.
template <class Growth, std::size_t Page>
struct chunk_sizes {
    std::size_t held_bytes = 0;
    std::size_t limit_bytes = SIZE_MAX;
    bool grows_in_place = false;
    base::holes seen = base::holes::never;

    /// How much may move before slack doubles, in per cent of the bytes held. Slack is how much more a pool may hold than was
    /// ever in use (slack.hpp).
    static constexpr unsigned moved_percent() noexcept {
        if constexpr (cuts)
            return Growth::moved_percent;
        return 200;
    }

    /// How many bytes to ask for when `bytes` are needed; 0 if that overflows.
    std::size_t next(std::size_t bytes) const noexcept {
        if constexpr (cuts)
            return grows_in_place ? at_least_a_piece(bytes) : base::align_up(Growth::apart::next(bytes, held_bytes), Page);
        else
            return base::align_up(Growth::next(bytes, held_bytes), Page);
    }

    /// How large each chunk is when `bytes` bytes are got.
    std::size_t piece_of([[maybe_unused]] std::size_t bytes) const noexcept {
        if constexpr (cuts)
            if (grows_in_place) {
                std::size_t const piece = usual_piece(bytes, seen);
                std::size_t const least = base::align_up(bytes / most_pieces, Page);
                std::size_t const larger = piece > least ? piece : least;
                return larger < bytes ? larger : bytes;
            }
        return bytes; // all of it is one chunk
    }

    /// How much of `bytes`, which 'next' answered where `least_bytes` are needed, to get as one chunk for blocks of
    /// `block_bytes` each. All of it if there is no limit; else what such blocks fill, in whole pages. If the limit leaves just
    /// room for a number of such blocks, they fill the chunk's last page, too; for that it may be larger than `bytes`.
    std::size_t filled(std::size_t bytes, std::size_t least_bytes, std::size_t block_bytes) const noexcept {
        if (limit_bytes == SIZE_MAX)
            return bytes;
        std::size_t const fit = bytes / block_bytes, least = (least_bytes - 1) / block_bytes + 1;
        std::size_t const room = limit_bytes < held_bytes ? 0 : base::align_down(limit_bytes - held_bytes, Page);
        if (room == 0 || room % block_bytes != 0)
            return base::align_up((fit < least ? least : fit) * block_bytes, Page);
        std::size_t const part = base::natural_alignment(block_bytes);
        std::size_t const even = part < Page ? Page / part : 1; // so many blocks are whole pages, and the room is many of them
        std::size_t const whole = fit / even * even;
        return (whole < least ? (least - 1) / even * even + even : whole) * block_bytes;
    }

private:
    static constexpr bool cuts = contract::holds<contract::has_piece, Growth, base::holes>;
    static constexpr std::size_t most_pieces = 1024; // got at once: each costs tens of microseconds
    static constexpr std::size_t pieces_of_a_limit = 512; // a piece is no larger than the limit divided by this

    // One piece is got even if less is needed. Once holes were seen, others may come, and a large piece that is only partly
    // used cannot be moved: from then on the least is the piece for pools with holes.
    std::size_t at_least_a_piece(std::size_t bytes) const noexcept {
        std::size_t const piece = usual_piece(bytes, seen == base::holes::never ? base::holes::never : base::holes::now);
        return base::align_up(bytes > piece ? bytes : piece, Page);
    }

    // What the policy says for a pool that holds `bytes` bytes more, within what the limit allows for a piece.
    std::size_t usual_piece(std::size_t bytes, base::holes now) const noexcept {
        std::size_t const held = base::add_overflows(held_bytes, bytes) ? SIZE_MAX : held_bytes + bytes;
        std::size_t const piece = base::align_up(Growth::piece(held, now), Page);
        std::size_t const most = base::align_down(limit_bytes / pieces_of_a_limit, Page);
        return piece <= most ? piece : most < Page ? Page : most;
    }
};

} // namespace supply
} // namespace v0
} // namespace weir
