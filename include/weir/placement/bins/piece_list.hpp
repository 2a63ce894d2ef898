// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// piece_list: which pieces of raw bytes, for slabs, are free?
//
// A slab has a power of two of bytes and starts at a multiple of its size, and so do the pieces here. A range is cut into the
// fewest such pieces. A request takes the smallest piece that is large enough and halves it until it fits, as a buddy system
// does (Knuth, TAOCP 2.5, algorithm R). Pieces do not join again. A placement that is fed slab by slab has hardly any pieces,
// so the list is a plain array.
//
// invariant: every piece has a power of two of bytes and starts at a multiple of its size.
// order:     none; an object belongs to one lock.
// cost:      take: O(pieces). 16 host bytes a piece.
// not for:   many pieces.

#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>

#include <cstddef>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// The free pieces. Not thread-safe. Only 'reserve', 'add' and 'take' allocate; they throw std::bad_alloc before any change.
class piece_list {
public:
    /// The most pieces that one range is cut into: two of each power of two.
    static constexpr std::size_t most_pieces = 128;

    /// Makes room for 'more' calls of 'put'.
    void reserve(std::size_t more) {
        if (pieces_.capacity() - pieces_.size() < more)
            pieces_.reserve(pieces_.size() + (more > pieces_.size() ? more : pieces_.size()));
    }

    /// Adds one piece; room must be reserved.
    void put(base::range piece) noexcept { pieces_.push_back(piece); }

    /// Cuts 'r' into pieces and adds them. Afterwards there is room for 'spare' calls of 'put'.
    void add(base::range r, std::size_t spare) {
        bool const whole = base::is_power_of_two(r.bytes) && r.offset % r.bytes == 0;
        reserve(spare + (whole ? 1 : most_pieces)); // a piece that 'take' just took out comes back without needing more room
        while (r) {
            std::size_t const room = std::size_t{1} << base::floor_log2(r.bytes);
            std::size_t const natural = base::natural_alignment(r.offset);
            std::size_t const bytes = natural == 0 || natural > room ? room : natural;
            put({r.offset, bytes});
            r = {r.offset + bytes, r.bytes - bytes};
        }
    }

    /// A piece of exactly 'bytes' bytes, a power of two, or range{}. Afterwards there is room for 'spare' calls of 'put'.
    base::range take(std::size_t bytes, std::size_t spare) {
        std::size_t best = pieces_.size();
        for (std::size_t at = 0; at < pieces_.size(); ++at)
            if (pieces_[at].bytes >= bytes &&
                (best == pieces_.size() || pieces_[at].bytes < pieces_[best].bytes))
                best = at;
        if (best == pieces_.size())
            return {};
        reserve(spare + most_pieces);
        base::range piece = take_at(best);
        while (piece.bytes != bytes) {
            piece.bytes /= 2;
            put({piece.end(), piece.bytes});
        }
        return piece;
    }

    /// Returns the last piece, and removes it.
    base::range back() const noexcept { return pieces_.back(); }
    void drop_back() noexcept { pieces_.pop_back(); }

    /// Removes all pieces inside 'wanted' if together they make up all of it. Otherwise changes nothing and returns false.
    bool take_all(base::range wanted) noexcept {
        std::size_t covered = 0;
        for (base::range const& piece : pieces_)
            covered += wanted.contains(piece) ? piece.bytes : 0;
        if (covered != wanted.bytes)
            return false;
        for (std::size_t at = pieces_.size(); at-- > 0;)
            if (wanted.contains(pieces_[at]))
                take_at(at);
        return true;
    }

    /// Bytes of the largest piece.
    std::size_t largest() const noexcept {
        std::size_t bytes = 0;
        for (base::range const& piece : pieces_)
            bytes = piece.bytes > bytes ? piece.bytes : bytes;
        return bytes;
    }

    bool empty() const noexcept { return pieces_.empty(); }
    std::size_t size() const noexcept { return pieces_.size(); }

    /// Host bytes that the list holds.
    std::size_t bookkeeping_bytes() const noexcept { return pieces_.capacity() * sizeof(base::range); }

private:
    base::range take_at(std::size_t at) noexcept {
        base::range const piece = pieces_[at];
        pieces_[at] = pieces_.back();
        pieces_.pop_back();
        return piece;
    }

    base::growing_array<base::range> pieces_;
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
