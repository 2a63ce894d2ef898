// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// size_lists: which free range is the closest fit?
//
// There is a list for each size class; a class has nearly equal sizes. A bitmap of two levels says which lists are not empty,
// so two bit scans find the next one. This is TLSF (Masmano, Ripoll, Crespo and Real, 2004), but with 256 classes an octave
// (from one power of two to the next) where TLSF has 32. A class is then 0.4 % wide, which is as close as a best fit needs to
// be. Up to 511 granules, each size has a class of its own.
//
// The range that was put into a list last is taken first. On traces of training and data frames, that left no more memory
// unused than taking the lowest address, and less than taking the oldest. It is also the cheapest.
//
// invariant: a bit is set exactly if its list is not empty; a node is in the class of its granules.
// order:     none; an object belongs to one lock.
// cost:      every member O(1); 17 KiB, which are allocated for the first range.
// not for:   telling apart ranges above 8 Mi granules: the last class holds them all.

#include <weir/base/growing_array.hpp>
#include <weir/base/size.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Lists of nodes. The nodes lie in an array whose elements have 'next', 'previous' and 'in'; index 0 means 'none'. Not
/// thread-safe. Only 'prepare' allocates.
class size_lists {
public:
    using index_type = std::uint32_t;

    static constexpr unsigned classes = 4096; // 64 words of 64 bits: two levels
    static constexpr unsigned last = classes - 1;

    /// The class of a range of 'granules' granules.
    static unsigned class_of(std::size_t granules) noexcept {
        unsigned const shift = base::floor_log2(granules | octave) - octave_log2;
        std::size_t const in = (std::size_t{shift} << octave_log2) + (granules >> shift);
        return in < classes ? static_cast<unsigned>(in) : last;
    }

    /// True if all ranges of the class have the same size.
    static bool one_size(unsigned in) noexcept { return in < 2 * octave; }

    /// Allocates the lists, all empty, unless they exist. Throws std::bad_alloc before any change.
    void prepare() {
        if (!heads_.empty())
            return;
        words_.resize(classes / 64);
        heads_.resize(classes);
    }

    /// The first node of a class; 0 if the class is empty.
    index_type head(unsigned in) const noexcept { return heads_[in]; }

    /// The first class at or above 'in' that has a node; 'classes' if none has.
    unsigned occupied_from(unsigned in) const noexcept {
        if (in >= classes || top_ == 0)
            return classes;
        unsigned word = in / 64;
        std::uint64_t bits = words_[word] >> (in % 64) << (in % 64);
        if (bits == 0) {
            // Shifted in two steps, because a shift by 64 would be undefined.
            std::uint64_t const above = top_ >> word >> 1 << word << 1;
            if (above == 0)
                return classes;
            word = base::lowest_bit(above);
            bits = words_[word];
        }
        return word * 64 + base::lowest_bit(bits);
    }

    /// The last class that has a node; 'classes' if none has.
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
        nodes[head].previous = n; // node 0 belongs to no range, so this needs no branch
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
