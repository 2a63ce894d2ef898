// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool get more memory, and what does it give back for it?
//
// An upstream that hands out chunks is asked for a whole chunk. Wholly free chunks, which did not help, go back to it first. An
// upstream that grows in place is asked for just what is missing, right behind a chunk (growth_in_place.hpp); only where that
// fails does it have to find a chunk of the block's own.
//
// invariant: a chunk goes back or moves only when no work uses any byte of it; a failed call keeps no chunk that it got.
// order:     one thread at a time.
// cost:      driver calls, and O(chunks) for each.
// not for:   finding free bytes: that is the reuse rule's ladder.

#include <cstddef>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/supply/chunk_sizes.hpp>
#include <weir/supply/free_chunks.hpp>
#include <weir/supply/growth_in_place.hpp>
#include <weir/supply/held_chunks.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// `Rule`: the reuse rule, bound to `Placement`. `Lock`: guards the list of chunks. `KnowsWork`: whether the rule knows which
/// free bytes enqueued work still uses; if not, an upstream that unmaps waits for all work first, as cudaFree does.
template <class Upstream, class Placement, class Rule, class Growth, class Lock, bool KnowsWork>
class chunk_supply {
public:
    using chunks_of = held_chunks<Upstream, Lock>;

private:
    static constexpr std::size_t page = chunks_of::granularity();
    static_assert(base::is_power_of_two(page) && base::is_power_of_two(Upstream::alignment),
                  "weir: an upstream's 'alignment' and 'granularity' are powers of two");
    using sizes_of = chunk_sizes<Growth, page>;
    static constexpr bool grows_in_place = contract::holds<contract::has_extends, Upstream> &&
                                           contract::holds<contract::has_fence, Placement> &&
                                           contract::holds<contract::has_visit_usable, Rule, stream_ref, Placement>;
    static constexpr std::size_t usual_cuda_alignment = 256; // of cudaMalloc, where memory cannot be mapped

public:
    /// Whether memory can be taken away while its addresses stay, on devices that map memory.
    static constexpr bool can_suspend = grows_in_place;

    /// What is free in the pool.
    using free_of = free_chunks<Placement, Rule, chunks_of, grows_in_place>;

    chunk_supply(Upstream upstream, std::size_t limit_bytes) : held_(prepared(std::move(upstream)), limit_bytes) {}

    /// What the pool holds.
    chunks_of const& held() const noexcept { return held_; }
    chunks_of& held() noexcept { return held_; }
    free_of free_in(Rule& rule) noexcept { return free_of(held_, rule); }
    /// Whether there could be room for such a block if no other were handed out: in what is held, or within the limit in a
    /// chunk that the upstream can ever have. (A chunk may be aligned better than promised; a block that fits only then does
    /// not count.) Any thread.
    bool can_hold(std::size_t bytes, std::size_t alignment) const noexcept {
        std::size_t const needed = least_chunk_for(bytes, alignment); // 0: no chunk has such a block
        return needed != 0 && !suspended() &&
               (needed <= held_.bytes() || (needed <= held_.limit_bytes() && held_.can_acquire(needed)));
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

    /// The same for a block for which the placement squeezes, if it can.
    static constexpr std::size_t least_chunk_for(std::size_t bytes, std::size_t alignment) noexcept {
        if constexpr (contract::holds<contract::has_squeeze, Placement>)
            return base::align_up(Placement::squeeze_needs(bytes, alignment, usual_alignment()), page);
        return chunk_for(bytes, alignment);
    }

    /// Gets room for such a block, for `stream` first; false: there is none. `again`: what the call before got was not enough,
    /// since another thread took it or the chunk started at no such address as chunks do as a rule. Throws what the upstream
    /// and the rule throw.
    bool grow(Rule& rule, std::size_t bytes, std::size_t alignment, stream_ref stream, bool again) {
        std::size_t const promised = grows_in_place && !extends() ? usual_cuda_alignment : Upstream::alignment;
        std::size_t const needed = chunk_for(bytes, alignment, again && starts_anywhere_ ? promised : usual_alignment());
        if (needed == 0 || needed > held_.limit_bytes())
            return false;
        if constexpr (grows_in_place)
            if (extends() && !again && alignment <= page && in_place_.grow(free_in(rule), bytes, alignment, stream))
                return true;
        if (held_.bytes() > held_.limit_bytes() && rule.used().bytes != 0)
            return false; // the limit is a new one: what went back for this would not come again
        std::size_t const wanted = sizes().next(needed);
        std::size_t const step = wanted < needed ? needed : wanted; // 'wanted' is 0 where it overflows
        // Wholly free chunks go back first. They did not help here, or the block would have been found there.
        give_back(rule, held_.bytes() > needed ? held_.bytes() - needed : 0);
        return acquire_at_most(rule, step, needed, block_in_chunk(bytes, alignment, needed), stream) ||
               (make_room(rule) && acquire(rule, needed, stream));
    }

    /// The same where 'grow' found no room, for a block for which the placement squeezes.
    bool grow_least(Rule& rule, std::size_t bytes, std::size_t alignment, stream_ref stream) {
        std::size_t const needed = least_chunk_for(bytes, alignment);
        return needed < chunk_for(bytes, alignment) && needed <= held_.limit_bytes() &&
               acquire_at_most(rule, sizes().next(needed), needed, Placement::rounded(bytes, alignment), stream);
    }

    /// Gets `bytes` bytes side by side, in whole pages; false: no room, or too much for the limit. Throws as 'grow'.
    bool acquire(Rule& rule, std::size_t bytes, stream_ref stream) {
        base::range chunk;
        if constexpr (grows_in_place)
            chunk = held_.acquire(bytes, sizes().piece_of(bytes));
        else
            chunk = held_.acquire(bytes);
        starts_anywhere_ = starts_anywhere_ || !base::is_aligned(chunk.offset, usual_alignment());
        return free_in(rule).add(chunk, stream, false);
    }
    /// Bytes of a page.
    static constexpr std::size_t page_bytes() noexcept { return page; }

    /// Gives wholly free chunks back while more than `keep_bytes` are held; whether any went.
    bool give_back(Rule& rule, std::size_t keep_bytes) { return free_in(rule).give_back(keep_bytes); }

    /// The same for a pool that starts over: offers the upstream again what it refused, and forgets how much was ever in use.
    void trim(Rule& rule, std::size_t keep_bytes) {
        gather(rule);
        held_.offer_again();
        in_place_.start_anew();
        give_back(rule, keep_bytes);
    }
    /// Brings free bytes together, as far as no stream has to wait for it.
    static void gather([[maybe_unused]] Rule& rule) {
        if constexpr (contract::holds<contract::has_borrow, Rule, stream_ref>)
            rule.gather(on_host, false);
    }

    /// Whether memory can be taken away on this device.
    bool suspends() const noexcept { return can_suspend && extends(); }
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

    // The bytes that each such block takes of a chunk for many of them, at most those of a chunk for one.
    static constexpr std::size_t block_in_chunk(std::size_t bytes, std::size_t alignment, std::size_t needed) noexcept {
        // A small block needs a slab at first, but blocks of its size fill a chunk side by side.
        bool const is_usual = alignment <= usual_alignment();
        std::size_t const alone =
            is_usual ? Placement::rounded(bytes, alignment) : Placement::needs(bytes, alignment, usual_alignment());
        std::size_t const each = base::align_up(alone, alignment);
        return each != 0 && each < needed ? each : needed;
    }

    // Gets `bytes` bytes, under a limit what such blocks fill of them, or else room for half as many blocks, and so on: chunks
    // for one block each would hold fewer. Where memory grows in place, what blocks do not fill joins the next chunk.
    bool acquire_at_most(Rule& rule, std::size_t bytes, std::size_t needed, std::size_t block, stream_ref stream) {
        std::size_t const room = base::align_down(held_.room_bytes(), page);
        if (bytes > room && room > needed)
            bytes = room;
        else if (!extends())
            bytes = sizes().filled(bytes, needed, block);
        for (; bytes > needed; bytes = base::align_up(bytes / 2 / block * block, page))
            if (acquire(rule, bytes, stream))
                return true;
        return acquire(rule, needed, stream);
    }

    sizes_of sizes() const noexcept {
        return sizes_of{held_.bytes(), held_.limit_bytes(), extends(), in_place_.holes()};
    }

    // Whether the pool grows in place on this device.
    bool extends() const noexcept {
        if constexpr (grows_in_place) {
            static_assert(contract::require_reuse_in_place<Rule, stream_ref>());
            static_assert(Placement::granularity <= page,
                          "weir: over memory that grows in place a placement's granularity is at most a page of 2 MiB");
            return held_.extends();
        }
        return false;
    }

    // Gives back every wholly free chunk, and offers again what the upstream refused; whether any went.
    bool make_room(Rule& rule) {
        bool const any = give_back(rule, 0);
        return held_.offer_again() || any;
    }

    chunks_of held_;
    growth_in_place<Placement, Growth, free_of> in_place_;
    base::atomic<bool> suspended_{false};
    bool starts_anywhere_ = false; // whether a chunk started at no multiple of 'usual_alignment'; one thread at a time grows
};

} // namespace supply
} // namespace v0
} // namespace weir
