// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do chunks become free bytes, and how do they leave a pool again?
//
// What is free in a pool is known to the reuse rule, which keeps it in one placement or in many, and knows which free bytes
// enqueued work still uses. A chunk that comes in is added to the rule's free bytes. A chunk leaves only if it is wholly free
// and no work uses it: first it is taken out of the free bytes, then it goes back to the upstream or moves.
//
// invariant: a chunk goes back only when no work uses any byte of it; a failed call keeps no chunk that it got.
// order:     one thread at a time.
// cost:      O(chunks), and the upstream's calls.
// not for:   how much to get, or which chunk should leave: chunk_supply.hpp and growth_in_place.hpp decide.

#include <cstddef>
#include <new>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/supply/movable_chunks.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// Names a pool's chunks and its rule, and owns neither. `Chunks`: see held_chunks.hpp. `GrowsInPlace`: chunks may lie side by
/// side, where free bytes of one join those of the next.
template <class Placement, class Rule, class Chunks, bool GrowsInPlace>
class free_chunks {
public:
    static constexpr std::size_t page = Chunks::granularity();
    static constexpr bool shows_free = contract::holds<contract::has_visit_usable, Rule, stream_ref, Placement>;

    free_chunks(Chunks& held, Rule& rule) noexcept : held_(held), rule_(rule) {}

    Chunks& held() const noexcept { return held_; }
    Rule& rule() const noexcept { return rule_; }

    /// Adds `chunks`, which lie side by side, to the free bytes, for `stream` first; `joins`: there are free bytes right before
    /// them. If that throws, they go back. False where there are none.
    bool add(base::range chunks, stream_ref stream, bool joins) const {
        if (!chunks)
            return false;
        try {
            if constexpr (GrowsInPlace)
                rule_.add(chunks, stream, joins);
            else
                rule_.add(chunks, stream);
        } catch (...) {
            held_.release_within(chunks);
            throw;
        }
        return true;
    }

    /// Takes whole pages out of the free bytes, if they are wholly free and no work uses them; `start`: where the free range
    /// starts that they lie in.
    template <class... Start>
    bool try_take(base::range pages, Start... start) const {
        bool done = false;
        // No set counts bytes outside of whole granules and slabs as free; a chunk that starts at no page may consist of them.
        std::size_t least_bytes = 0;
        if constexpr (GrowsInPlace)
            least_bytes = held_.extends() ? pages.bytes : 0;
        rule_.visit_unused([&](Placement& free) { return done = free.remove(pages, start...); }, least_bytes);
        return done;
    }

    /// Free ranges of at least `least_bytes` bytes that no work uses.
    base::growing_array<base::range> ranges(std::size_t least_bytes = page) const {
        base::growing_array<base::range> unused;
        rule_.visit_unused([&](Placement& free) {
            free.for_each_free(least_bytes, [&](base::range each) { unused.push_back(each); });
            return false; // all of them
        });
        return unused;
    }

    /// Wholly free chunks that no work uses, but for those that overlap `spared`.
    movable_chunks list(base::range spared) const {
        movable_chunks all;
        for (base::range const& free : ranges())
            for (base::range const* chunk = held_.chunks().from(free.offset);
                 chunk != held_.chunks().end() && free.contains(*chunk); ++chunk)
                if (!chunk->overlaps(spared))
                    all.add(movable_chunk{*chunk, free.offset});
        return all;
    }

    /// Gives wholly free chunks back while more than `keep_bytes` are held, but none that overlaps `spared`; whether any went.
    bool give_back(std::size_t keep_bytes, base::range spared = {}) const {
        bool any = false;
        if constexpr (GrowsInPlace) {
            if (held_.bytes() <= keep_bytes)
                return false;
            try {
                for (base::range const& free : ranges())
                    any |= give_back_within(free, keep_bytes, spared);
            } catch (std::bad_alloc const&) { // no memory for a list: each chunk is tried by itself
                for (auto const* each = held_.chunks().end(); each != held_.chunks().begin() && held_.bytes() > keep_bytes;)
                    if (base::range const chunk = *--each; !chunk.overlaps(spared) && try_take(chunk))
                        any |= held_.release(chunk);
            }
        } else if constexpr (contract::holds<contract::has_remove, Placement> && shows_free) {
            for (std::size_t i = held_.size(); i-- > 0 && held_.bytes() > keep_bytes;) // the largest chunk first
                if (base::range const chunk = held_[i]; try_take(chunk))
                    any |= held_.release(chunk);
        }
        return any;
    }

private:
    bool give_back_within(base::range free, std::size_t keep_bytes, base::range spared) const {
        bool any = false;
        std::size_t start = free.offset;
        auto const* each = held_.chunks().from(start);
        while (each != held_.chunks().end() && free.contains(*each) && held_.bytes() > keep_bytes) {
            base::range const chunk = *each;
            if (chunk.overlaps(spared) || !try_take(chunk, start)) {
                ++each;
                continue;
            }
            start = chunk.end();
            any |= held_.release(chunk); // the next one takes its place
        }
        return any;
    }

    Chunks& held_;
    Rule& rule_;
};

} // namespace supply
} // namespace v0
} // namespace weir
