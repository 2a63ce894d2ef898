// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which addresses of a reservation have no memory behind them?
//
// An upstream that reserves addresses puts memory behind some of them. The others are kept here, as a sorted array of gaps;
// gaps that touch are joined. There are about as many gaps as chunks that were given back. A chunk costs tens of microseconds
// in driver calls, so a linear search through the gaps is fast enough.
//
// invariant: gaps are disjoint and sorted. They do not touch, except where one reservation ends and another starts.
// order:     one thread at a time.
// cost:      O(gaps) a call; 16 bytes a gap.
// not for:   memory: a placement keeps track of free memory.

#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>

namespace weir {
inline namespace v0 {
namespace upstream::detail {

/// One thread at a time.
class free_addresses {
public:
    /// Makes room, so that the next `more` calls of 'add' or 'give' do not throw. Throws std::bad_alloc.
    void reserve(std::size_t more) { gaps_.reserve(gaps_.size() + more); }

    /// Adds the addresses of a reservation. They join no other reservation's. Call 'reserve' first.
    void add(base::range reservation) noexcept { gaps_.insert(after(reservation.offset), reservation); }

    /// Takes `bytes` bytes from the start of the smallest gap that is large enough; an empty range if none is.
    base::range take(std::size_t bytes) noexcept {
        base::range* best = nullptr;
        for (base::range& each : gaps_)
            if (each.bytes >= bytes && (!best || each.bytes < best->bytes))
                best = &each;
        if (!best || bytes == 0)
            return base::range{};
        base::range const taken{best->offset, bytes};
        shorten(best, bytes);
        return taken;
    }

    /// Takes exactly `wanted`, which must start where a gap starts. Returns whether it was free.
    bool take_at(base::range wanted) noexcept {
        base::range* const next = after(wanted.offset);
        if (next == gaps_.begin() || next[-1].offset != wanted.offset || next[-1].bytes < wanted.bytes)
            return false;
        shorten(next - 1, wanted.bytes);
        return true;
    }

    /// Takes `freed` back, which was taken here before. `reservation`: the reservation that it lies in. Call 'reserve' first.
    void give(base::range freed, base::range reservation) noexcept {
        base::range* const next = after(freed.offset);
        bool const joins_next = next != gaps_.end() && next->offset == freed.end() && freed.end() != reservation.end();
        bool const joins_previous =
            next != gaps_.begin() && next[-1].end() == freed.offset && freed.offset != reservation.offset;
        if (joins_previous) {
            next[-1].bytes += freed.bytes + (joins_next ? next->bytes : 0);
            if (joins_next)
                gaps_.erase(next);
        } else if (joins_next) {
            *next = base::range{freed.offset, freed.bytes + next->bytes};
        } else {
            gaps_.insert(next, freed);
        }
    }

    /// The gaps, in order of address.
    base::range const* begin() const noexcept { return gaps_.begin(); }
    base::range const* end() const noexcept { return gaps_.end(); }

private:
    // The first gap that starts behind `offset`.
    base::range* after(std::size_t offset) noexcept {
        base::range* at = gaps_.begin();
        while (at != gaps_.end() && at->offset <= offset)
            ++at;
        return at;
    }

    void shorten(base::range* gap, std::size_t bytes) noexcept {
        *gap = base::range{gap->offset + bytes, gap->bytes - bytes};
        if (!*gap)
            gaps_.erase(gap);
    }

    base::growing_array<base::range> gaps_;
};

} // namespace upstream::detail
} // namespace v0
} // namespace weir
