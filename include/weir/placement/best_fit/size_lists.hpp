// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// size_lists: which free range is the closest fit?
//
// Segregated lists of nearly equal sizes under a two-level bitmap, so that the next list that has a range is
// found by two bit scans: TLSF (Masmano, Ripoll, Crespo and Real, 2004), but with 256 classes an octave where TLSF
// has 32. A class is then 0.4 % wide, which is as close as a best fit needs to be; up to 511 granules each size has
// a class of its own.
//
// Lists are last in, first out: on traces of training and data frames that left no more unused than the
// lowest address did, and less than first in, first out; it is also the cheapest.
//
// invariant: a bit is set exactly where a list is not empty; a node's class is that of its granules.
// order: none; an object belongs to one lock.
// cost: every member O(1); 17 KiB, which come with the first range.
// not for: telling ranges above 8 Mi granules apart: the last class holds them all.

#include <weir/base/growing_array.hpp>
#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Lists of the nodes of an array whose elements have 'next', 'previous' and 'in'; index 0 means 'none'. Not
/// thread-safe. Only 'prepare' allocates.
class size_lists {
public:
    using index_type = std::uint32_t;

    static constexpr unsigned classes = 4096; // 64 words of 64 bits: two levels
    static constexpr unsigned last = classes - 1;

    /// The class of a range of that many granules.
    static unsigned class_of(std::size_t granules) noexcept {
        unsigned const shift = base::floor_log2(granules | octave) - octave_log2;
        std::size_t const in = (std::size_t{shift} << octave_log2) + (granules >> shift);
        return in < classes ? static_cast<unsigned>(in) : last;
    }

    /// True for a class whose ranges are all of one size.
    static bool one_size(unsigned in) noexcept { return in < 2 * octave; }

    /// Makes the lists, empty, if they are not there yet. Throws std::bad_alloc before any change.
    void prepare() {
        if (!heads_.empty())
            return;
        words_.resize(classes / 64);
        heads_.resize(classes);
    }

    /// The first node of a class, or 0.
    index_type head(unsigned in) const noexcept { return heads_[in]; }

    /// The first class from 'in' on that has a node; 'classes' where none has.
    unsigned occupied_from(unsigned in) const noexcept {
        if (in >= classes || top_ == 0)
            return classes;
        unsigned word = in / 64;
        std::uint64_t bits = words_[word] >> (in % 64) << (in % 64);
        if (bits == 0) {
            // The shift is split, since one by 64 would be undefined.
            std::uint64_t const above = top_ >> word >> 1 << word << 1;
            if (above == 0)
                return classes;
            word = base::lowest_bit(above);
            bits = words_[word];
        }
        return word * 64 + base::lowest_bit(bits);
    }

    /// The last class that has a node; 'classes' where none has.
    unsigned last_occupied() const noexcept {
        if (top_ == 0)
            return classes;
        unsigned const word = base::floor_log2(top_);
        return word * 64 + base::floor_log2(words_[word]);
    }

    /// Puts node n first in its class.
    template <class Nodes>
    void link(Nodes& nodes, index_type n, unsigned in) noexcept {
        index_type const head = heads_[in];
        nodes[n].in = in;
        nodes[n].previous = 0;
        nodes[n].next = head;
        nodes[head].previous = n; // node 0 is nobody's: that saves a branch
        heads_[in] = n;
        words_[in / 64] |= std::uint64_t{1} << (in % 64);
        top_ |= std::uint64_t{1} << (in / 64);
    }

    /// Takes node n out of its class.
    template <class Nodes>
    void unlink(Nodes& nodes, index_type n) noexcept {
        index_type const before = nodes[n].previous;
        index_type const after = nodes[n].next;
        nodes[after].previous = before;
        if (before != 0) {
            nodes[before].next = after;
            return;
        }
        unsigned const in = nodes[n].in;
        heads_[in] = after;
        std::uint64_t const emptied = after == 0;
        words_[in / 64] ^= emptied << (in % 64);
        top_ ^= std::uint64_t{words_[in / 64] == 0} << (in / 64);
    }

    /// Host bytes that the lists hold.
    std::size_t bookkeeping_bytes() const noexcept {
        return heads_.capacity() * sizeof(index_type) + words_.capacity() * sizeof(std::uint64_t);
    }

private:
    static constexpr unsigned octave_log2 = 8;
    static constexpr unsigned octave = 1u << octave_log2; // classes an octave

    base::growing_array<index_type> heads_;
    base::growing_array<std::uint64_t> words_;
    std::uint64_t top_ = 0;
};

} // namespace placement::detail
} // namespace v0
} // namespace weir
