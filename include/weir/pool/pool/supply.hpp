// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool get more memory, and what does it give back for it?
//
// An upstream that hands out chunks is asked for a whole chunk. Wholly free chunks, which did not help, go back to it first. An
// upstream that grows in place is asked for just what is missing: the free bytes at the end of a chunk are extended by what the
// block lacks. Wholly free chunks elsewhere move there with their memory, so that the pool holds little more than was ever in
// use at once (growth_place.hpp says where, slack.hpp when). Only the rest is new memory; it is got before anything moves.
//
// invariant: a chunk goes back or moves only when no work uses any byte of it; a failed call keeps no chunk that it got.
// order:     one thread at a time.
// cost:      driver calls, and O(chunks) for each.
// not for:   finding free bytes: that is the reuse rule's ladder.

#include <cstddef>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/hole_watch.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/pool/pool/chunk_sizes.hpp>
#include <weir/pool/pool/growth_place.hpp>
#include <weir/pool/pool/held_chunks.hpp>
#include <weir/pool/pool/movable_chunks.hpp>
#include <weir/pool/pool/slack.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// `Rule`: the reuse rule, bound to `Placement`. `Lock`: guards the list of chunks. `KnowsWork`: whether the rule knows which
/// free bytes enqueued work still uses; if not, an upstream that unmaps waits for all work first, as cudaFree does.
template <class Upstream, class Placement, class Rule, class Growth, class Lock, bool KnowsWork>
class supply {
    using chunks_of = held_chunks<Upstream, Lock>;
    static constexpr std::size_t page = chunks_of::granularity();
    static_assert(base::is_power_of_two(page) && base::is_power_of_two(Upstream::alignment),
                  "weir: an upstream's 'alignment' and 'granularity' are powers of two");
    using sizes_of = chunk_sizes<Growth, page>;
    static constexpr bool shows_free = contract::holds<contract::has_visit_usable, Rule, stream_ref, Placement>;
    static constexpr bool grows_in_place = contract::holds<contract::has_extends, Upstream> &&
                                           contract::holds<contract::has_for_each_free, Placement> && shows_free;
    static constexpr std::size_t usual_cuda_alignment = 256; // of cudaMalloc, where memory cannot be mapped

public:
    /// Whether memory can be taken away while its addresses stay, on devices that map memory.
    static constexpr bool can_suspend = grows_in_place && contract::holds<contract::has_withdraw, Upstream>;

    supply(Upstream upstream, std::size_t limit_bytes) : held_(prepared(std::move(upstream)), limit_bytes) {}

    /// What the pool holds.
    chunks_of const& held() const noexcept { return held_; }
    /// Whether there could be room for such a block if no other were handed out: within the limit, and in a chunk that the
    /// upstream can ever have. (A chunk may be aligned better than promised; a block that fits only then does not count.) Any
    /// thread.
    bool can_hold(std::size_t bytes, std::size_t alignment) const noexcept {
        if (Placement::rounded(bytes, alignment) > base::align_down(held_.limit_bytes(), page) || suspended())
            return false;
        std::size_t const needed = chunk_for(bytes, alignment); // 0: no chunk has such a block
        return needed != 0 && (needed <= held_.bytes() || needed <= held_.most_bytes());
    }
    /// The kind of the pool's memory, in words.
    char const* kind() const noexcept {
        return grows_in_place && !extends() ? "device memory that cannot grow in place" : base::name_of(Upstream::space);
    }

    /// The bytes, in whole pages, of a chunk that has room for the block wherever it starts, at a page as a rule; 0 on
    /// overflow.
    static constexpr std::size_t chunk_for(std::size_t bytes, std::size_t alignment,
                                           std::size_t base = usual_alignment()) noexcept {
        return base::align_up(Placement::needs(bytes, alignment, base), page);
    }

    /// Gets room for such a block, for `stream` first; false: there is none. `again`: what the call before got was not enough,
    /// since another thread took it or the chunk started at no page. Throws what the upstream and the rule throw.
    bool grow(Rule& rule, std::size_t bytes, std::size_t alignment, stream_ref stream, bool again) {
        std::size_t const promised = grows_in_place && !extends() ? usual_cuda_alignment : Upstream::alignment;
        std::size_t const needed = again ? chunk_for(bytes, alignment, promised) : chunk_for(bytes, alignment);
        if (needed == 0 || needed > held_.limit_bytes())
            return false;
        if constexpr (grows_in_place)
            if (extends() && !again && alignment <= page && extend_for(rule, bytes, alignment, stream))
                return true;
        std::size_t const wanted = sizes().next(needed);
        std::size_t const step = wanted < needed ? needed : wanted; // 'wanted' is 0 where it overflows
        // Wholly free chunks go back first. They did not help here, or the block would have been found there.
        give_back(rule, held_.bytes() > needed ? held_.bytes() - needed : 0);
        return acquire_at_most(rule, step, needed, stream) || (make_room(rule) && acquire(rule, needed, stream));
    }

    /// Gets `bytes` bytes side by side, in whole pages; false: no room, or too much for the limit. Throws as 'grow'.
    bool acquire(Rule& rule, std::size_t bytes, stream_ref stream) {
        if constexpr (grows_in_place)
            return keep(rule, held_.acquire(bytes, sizes().piece_of(bytes)), stream, false);
        return keep(rule, held_.acquire(bytes), stream, false);
    }
    /// Bytes of a page.
    static constexpr std::size_t page_bytes() noexcept { return page; }

    /// Offers the upstream again what it refused, and forgets how much was ever in use.
    void start_anew() noexcept {
        held_.offer_again();
        moves_ = slack(sizes_of::moved_percent());
        watch_ = base::hole_watch();
        holes_ = base::holes::never;
    }

    /// Gives wholly free chunks back while more than `keep_bytes` are held, but none that overlaps `spared`; whether any went.
    bool give_back(Rule& rule, std::size_t keep_bytes, base::range spared = {}) {
        bool any = false;
        if constexpr (grows_in_place) {
            if (held_.bytes() <= keep_bytes)
                return false;
            for (base::range const& free : ranges_unused(rule))
                any |= give_back_within(rule, free, keep_bytes, spared);
        } else if constexpr (contract::holds<contract::has_remove, Placement> && shows_free) {
            for (std::size_t i = held_.size(); i-- > 0 && held_.bytes() > keep_bytes;) // the largest chunk first
                if (base::range const chunk = held_[i]; try_remove(rule, chunk))
                    any |= held_.release(chunk);
        }
        return any;
    }

    /// Whether memory can be taken away on this device.
    bool suspends() const noexcept { return can_suspend && extends(); }
    /// Visits, in order of address, what may be in use: all memory held but free ranges of `least_free_bytes` or more. No work
    /// is under way. Throws cuda_error and std::bad_alloc, and what the visit throws.
    template <class Visit>
    void visit_in_use(Rule& rule, std::size_t least_free_bytes, Visit const& visit) {
        base::growing_array<base::range> free_ranges = ranges_unused(rule, least_free_bytes);
        sort_by_address(free_ranges);
        held_.chunks().for_each_outside(free_ranges, visit);
    }

    /// Take the memory of all chunks away, and give it back; see held_chunks.
    void withdraw() { held_.withdraw(); }
    bool restore() { return held_.restore(); }
    /// To be called between the two: gives up wholly free pages while 'restore' would get more than `keep_bytes` bytes.
    void cut_free_pages(Rule& rule, std::size_t keep_bytes) {
        std::size_t left = held_.withdrawn_bytes();
        for (base::range const& free : ranges_unused(rule)) {
            std::size_t start = free.offset;
            base::range const whole = base::inward(free, page);
            for (base::range pages = held_.chunks().next_part(whole, whole.offset); pages && left > keep_bytes;
                 pages = held_.chunks().next_part(whole, pages.end())) {
                if (pages.bytes > left - keep_bytes)
                    pages.bytes = base::align_up(left - keep_bytes, page);
                if (!held_.prepare_cut(pages) || !try_remove(rule, pages, start))
                    continue;
                held_.cut(pages);
                left -= pages.bytes;
                start = pages.end();
            }
        }
    }
    /// Whether the pool is suspended: it hands out nothing and gets nothing until the memory is back. Any thread.
    bool suspended() const noexcept { return can_suspend && suspended_.load(base::memory_order_acquire); }
    void suspended(bool now) noexcept { suspended_.store(now, base::memory_order_release); }

private:
    static Upstream prepared(Upstream upstream) {
        if constexpr (!KnowsWork && contract::holds<contract::has_extends, Upstream>)
            upstream.wait_before_unmapping();
        return upstream;
    }
    // An upstream promises little (cudaMalloc: 256 bytes), but as a rule memory of whole pages starts at a page.
    static constexpr std::size_t usual_alignment() noexcept {
        std::size_t const least =
            base::natural_alignment(page) > Upstream::alignment ? base::natural_alignment(page) : Upstream::alignment;
        if constexpr (contract::holds<contract::has_usual_alignment, Upstream>)
            return Upstream::usual_alignment > least ? Upstream::usual_alignment : least;
        return least;
    }

    // Grows right behind a chunk, if that takes no more memory than a chunk of the block's own would.
    bool extend_for(Rule& rule, std::size_t bytes, std::size_t alignment, stream_ref stream) {
        std::size_t const whole = Placement::needs(bytes, alignment, page);
        // A small block is cut from a larger piece, which is aligned to its own size.
        std::size_t const least = alignment > Placement::granularity ? alignment : Placement::granularity;
        std::size_t const aligned = whole == Placement::rounded(bytes, alignment) ? least : base::natural_alignment(whole);
        growth_place place;
        rule.visit_usable(stream, [&](Placement& free) {
            place = cheapest_growth_place(held_.chunks(), free, whole, aligned, page,
                                          [this](std::size_t end) { return held_.addresses_behind(end); });
        });
        if (place.end == 0)
            return false;
        movable_chunks unused = chunks_unused(rule, place.counted);
        std::size_t const in_use = rule.used().bytes + whole;
        holes_ = watch_.note(held_.bytes() - unused.bytes(), in_use);
        std::size_t const enough = base::align_up(moves_.to_move(held_.bytes(), place.bytes, in_use), page);
        std::size_t elsewhere = enough < unused.bytes() ? enough : unused.bytes();
        // At the limit and on a full device slack does not help: then all wholly free chunks move.
        if (!get_before_moving(rule, place, elsewhere, stream) &&
            (elsewhere == unused.bytes() || !get_before_moving(rule, place, elsewhere = unused.bytes(), stream)))
            return false;
        move_into(rule, place, elsewhere, unused, stream);
        if (place.bytes != 0 && !extend(rule, place.end, place.bytes, stream))
            return false; // somebody else got what went back
        moves_.used(in_use);
        return true;
    }

    // Gets first what the place lacks beyond the `elsewhere` bytes that are to move there. If that fails, nothing moves.
    bool get_before_moving(Rule& rule, growth_place& place, std::size_t elsewhere, stream_ref stream) {
        if (place.bytes <= elsewhere)
            return true;
        std::size_t const needed = place.bytes - elsewhere;
        std::size_t got = sizes().next(needed);
        if (got <= needed || got > place.gap_bytes || !extend(rule, place.end, got, stream))
            got = extend(rule, place.end, needed, stream) ? needed : 0;
        place.advance(got);
        return got != 0;
    }

    // Moves wholly free chunks, of about `bytes` bytes, to the place. What does not fit goes back, so that as much can be got.
    void move_into(Rule& rule, growth_place& place, std::size_t bytes, movable_chunks& unused, stream_ref stream) {
        std::size_t const before = held_.bytes();
        std::size_t moved = 0;
        while (moved < bytes) {
            movable_chunk const next = unused.next(bytes - moved, place.gap_bytes);
            if (!next.chunk)
                break;
            if (!try_remove(rule, next.chunk, next.free_from))
                continue;
            unused.gone(next);
            if (!held_.move(next.chunk, place.end)) {
                held_.release(next.chunk);
                break; // the others would not move either
            }
            moved += next.chunk.bytes;
            keep(rule, base::range{place.end, next.chunk.bytes}, stream, true);
            place.advance(next.chunk.bytes);
        }
        std::size_t const left = bytes > moved ? bytes - moved : 0;
        give_back(rule, before > left ? before - left : 0, place.counted);
        moves_.moved(moved + before - held_.bytes(), before);
    }

    movable_chunks chunks_unused(Rule& rule, base::range spared) {
        movable_chunks all;
        for (base::range const& each : ranges_unused(rule))
            for (base::range const* chunk = held_.chunks().from(each.offset);
                 chunk != held_.chunks().end() && each.contains(*chunk); ++chunk)
                if (!chunk->overlaps(spared))
                    all.add(movable_chunk{*chunk, each.offset});
        return all;
    }

    // Free ranges of at least `least_bytes` bytes that no work uses.
    static base::growing_array<base::range> ranges_unused(Rule& rule, std::size_t least_bytes = page) {
        base::growing_array<base::range> unused;
        rule.visit_unused([&](Placement& free) {
            free.for_each_free(least_bytes, [&](base::range each) { unused.push_back(each); });
            return false; // all of them
        });
        return unused;
    }

    bool extend(Rule& rule, std::size_t end, std::size_t bytes, stream_ref stream) {
        return keep(rule, held_.extend(end, bytes, sizes().piece_of(bytes)), stream, true);
    }

    // Gets `bytes` bytes, or else room for half as many such blocks, and so on: chunks for one block each would hold fewer.
    bool acquire_at_most(Rule& rule, std::size_t bytes, std::size_t needed, stream_ref stream) {
        std::size_t const room = base::align_down(held_.limit_bytes() - held_.bytes(), page);
        for (bytes = bytes > room && room > needed ? room : bytes; bytes > needed; bytes = bytes / 2 / needed * needed)
            if (acquire(rule, bytes, stream))
                return true;
        return acquire(rule, needed, stream);
    }

    // Adds `chunks`, which lie side by side, to the free bytes; `joins`: there are free bytes right before them.
    bool keep(Rule& rule, base::range chunks, stream_ref stream, bool joins) {
        if (!chunks)
            return false;
        try {
            if constexpr (grows_in_place)
                rule.add(chunks, stream, joins);
            else
                rule.add(chunks, stream);
        } catch (...) {
            held_.release_within(chunks);
            throw;
        }
        return true;
    }

    sizes_of sizes() const noexcept { return sizes_of{held_.bytes(), held_.limit_bytes(), extends(), holes_}; }

    // Whether the upstream can grow in place on this device (it may be able to on others).
    bool extends() const noexcept {
        if constexpr (grows_in_place) {
            static_assert(contract::require_reuse_in_place<Rule, stream_ref>());
            static_assert(Placement::granularity <= page,
                          "weir: over memory that grows in place a placement's granularity is at most a page of 2 MiB");
            return held_.upstream().extends();
        }
        return false;
    }

    // Gives back every wholly free chunk, and offers again what the upstream refused; whether any went.
    bool make_room(Rule& rule) {
        bool const any = give_back(rule, 0);
        return held_.offer_again() || any;
    }

    // Takes the chunk out of the free bytes, if it is wholly free and no work uses it; `start`: where its free range starts.
    template <class... Start>
    bool try_remove(Rule& rule, base::range chunk, Start... start) const {
        bool done = false;
        // No set counts bytes outside of whole granules and slabs as free; a chunk that starts at no page may consist of them.
        std::size_t const least_bytes = extends() ? chunk.bytes : 0;
        rule.visit_unused([&](Placement& free) { return done = free.remove(chunk, start...); }, least_bytes);
        return done;
    }

    bool give_back_within(Rule& rule, base::range free, std::size_t keep_bytes, base::range spared) {
        bool any = false;
        std::size_t start = free.offset;
        auto const* each = held_.chunks().from(start);
        while (each != held_.chunks().end() && free.contains(*each) && held_.bytes() > keep_bytes) {
            base::range const chunk = *each;
            if (chunk.overlaps(spared) || !try_remove(rule, chunk, start)) {
                ++each;
                continue;
            }
            start = chunk.end();
            any |= held_.release(chunk); // the next one takes its place
        }
        return any;
    }

    chunks_of held_;
    slack moves_{sizes_of::moved_percent()};
    base::hole_watch watch_;
    base::atomic<bool> suspended_{false};
    base::holes holes_ = base::holes::never;
};

} // namespace detail
} // namespace v0
} // namespace weir
