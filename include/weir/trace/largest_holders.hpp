// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which lines of the program hold most of a pool's memory, at a moment when there may be no memory to find that out?
//
// The recorder's ring holds what was allocated and freed of late. Of each address the last event says whether a block lives
// there, and which line allocated it. That event is kept in a table that was made together with the ring, and what is live is
// added up by line. So a refusal can say who holds most, even if the host has no memory either.
//
// invariant: nothing is allocated but the text. The ring keeps its events.
// cost:      some 20 ns an event of the ring, where a pool throws out_of_memory. 4 bytes of host memory for each event.
//            A thread that writes meanwhile finds its lane taken for a moment, and uses another.
// not for:   blocks whose allocation is not in the ring, since it was off, or full, or a 'flush' took the event out. Pools
//            whose blocks end without a free ('rewind', 'clear'): nothing is said of them. More addresses or lines than the
//            table has places for: those beyond are left out. What one line holds in all, where stacks are recorded: each
//            stack counts for itself.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/trace/event_ring.hpp>
#include <weir/trace/name_table.hpp>
#include <weir/trace/recorded_event.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// The bytes and blocks that one line holds.
struct holder {
    std::uint32_t site = 0; ///< a number of the name_table; 0: not known
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
};

/// One thread at a time.
class largest_holders {
public:
    static constexpr std::size_t most = 5;

    /// For a ring of so many events. Throws std::bad_alloc.
    explicit largest_holders(std::size_t events) { places_.resize(events / 8 < 64 ? 64 : events / 8); }

    /// Finds out who holds most of the memory of a source.
    void look(event_ring& ring, std::uint16_t source) noexcept {
        for (place& each : places_)
            each = place();
        ends_many_ = false;
        ring.visit([&](event const& one) {
            if (one.source == source)
                note(one);
        });
        add_up();
    }

    std::size_t memory_bytes() const noexcept { return places_.size() * sizeof(place); }

    holder const* begin() const noexcept { return largest_; }
    holder const* end() const noexcept { return largest_ + size_; }

    /// What 'look' found, such as '2 GiB in 3 blocks at train.cpp:12, 1 MiB in 1 block at load.cpp:3'; with whole stacks 'at
    /// train.cpp:12 from step(int) from main'. Empty if it found nothing, or if the host has no memory for the text.
    text said(name_table const& names) const noexcept {
        try {
            text all;
            for (holder const& each : *this)
                all = all + (all.empty() ? "" : ", ") + base::bytes_text(each.bytes) + " in " +
                      base::count_text(each.blocks, " block") + " at " + line_text(each, names);
            return all;
        } catch (...) { // the error goes without it
            return text();
        }
    }

private:
    // The last event of an address.
    struct place {
        std::uint64_t address = 0; // 0: none
        std::uint64_t ticks = 0;
        std::uint64_t bytes = 0; // 0: no block is there
        std::uint32_t site = 0;
    };
    static constexpr std::size_t most_lines = 256;
    static constexpr std::size_t most_callers = 8; // that a sentence names

    static text line_text(holder const& of, name_table const& names) {
        if (of.site == 0)
            return "lines that are not known";
        frame at = names[of.site];
        text all = line_text(at);
        for (std::size_t i = 0; at.caller != 0 && i < most_callers; ++i) {
            at = names[at.caller];
            all = all + " from " + line_text(at);
        }
        return at.caller == 0 ? all : all + " from others";
    }
    static text line_text(frame const& of) {
        if (of.file.empty())
            return of.function;
        char const* const slash = std::strrchr(of.file.c_str(), '/');
        return (slash ? slash + 1 : of.file.c_str()) + (":" + base::number_text(of.line));
    }

    void note(event const& one) noexcept {
        ends_many_ = ends_many_ || one.kind == event_kind::rewind || one.kind == event_kind::clear;
        if (one.kind != event_kind::allocate && one.kind != event_kind::free)
            return;
        place* const at = place_of(one.address);
        if (at && at->ticks <= one.ticks)
            *at = {one.address, one.ticks, one.kind == event_kind::free ? 0 : one.bytes, one.site};
    }

    // Where the address stands, or a free place for it; null if there is none nearby.
    place* place_of(std::uint64_t address) noexcept {
        std::size_t const home = static_cast<std::size_t>((address * golden_ratio >> 20) % places_.size());
        for (std::size_t step = 0; step < places_.size() && step < most_steps; ++step) {
            place& each = places_[(home + step) % places_.size()];
            if (each.address == address || each.address == 0)
                return &each;
        }
        return nullptr;
    }

    void add_up() noexcept {
        size_ = 0;
        if (ends_many_)
            return;
        holder by_line[most_lines];
        std::size_t lines = 0;
        for (place const& each : places_) {
            if (each.bytes == 0)
                continue;
            std::size_t at = 0;
            while (at < lines && by_line[at].site != each.site)
                ++at;
            if (at == most_lines)
                continue;
            lines += at == lines;
            by_line[at].site = each.site;
            by_line[at].bytes += each.bytes;
            ++by_line[at].blocks;
        }
        for (std::size_t i = 0; i < lines; ++i)
            offer(by_line[i]);
    }
    void offer(holder const& one) noexcept {
        if (size_ == most && one.bytes <= largest_[most - 1].bytes)
            return;
        std::size_t at = size_ == most ? most - 1 : size_++;
        for (; at != 0 && largest_[at - 1].bytes < one.bytes; --at)
            largest_[at] = largest_[at - 1];
        largest_[at] = one;
    }

    static constexpr std::size_t most_steps = 64;
    static constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u; // multiplicative hashing (Knuth, TAOCP 6.4)

    base::growing_array<place> places_;
    bool ends_many_ = false;
    holder largest_[most];
    std::size_t size_ = 0;
};

} // namespace trace
} // namespace v0
} // namespace weir
