// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Why does a pool get no chunk?
//
// For a block the pool needs a chunk that has room for it, and for 'reserve' the bytes that it lacks. Its own limit may be in
// the way, or the upstream, which says by itself why where it can (upstream::from_pool names the pool below). A sentence says
// what is in the way and, behind a semicolon, what to do about it.
//
// invariant: what is judged is the chunk that the pool asked for.
// cost:      a text; refusals only.
// not for:   what layers add: they amend the pool's 'refused'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/upstream_slot.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// What is known when a pool gets no chunk; sizes in bytes.
struct chunk_refusal {
    char const* kind;              ///< of the memory
    std::size_t needed_bytes;      ///< the chunk for the block, or what 'reserve' lacks; 0: nothing can be so large
    std::size_t held_bytes;        ///< by the pool
    std::size_t limit_bytes;       ///< the most that it may hold
    std::size_t refused_bytes = 0; ///< what the upstream did not take back
    // What the upstream is known to lack:
    std::size_t most_bytes = SIZE_MAX; ///< it never has more; SIZE_MAX: not known
    bool no_addresses = false;         ///< its last refusal was for want of addresses
    text reason = {};                  ///< why it has no room, if it says so
    // What blocks need:
    bool ends_together = false;  ///< blocks end with a scope, and a free gives nothing back
    std::size_t least_bytes = 0; ///< the smallest chunk of any block

    /// Why there is no room for a block.
    text for_block() const {
        if (needed_bytes == 0)
            return "no block of this pool can have that size and alignment; ask for less";
        text const needs = "it needs a chunk of " + base::exact_bytes_text(needed_bytes);
        if (needed_bytes > most_bytes)
            return needs + there_is() + "ask for less";
        if (needed_bytes > limit_bytes)
            return needs + ", more than the pool's limit of " + base::exact_bytes_text(limit_bytes) +
                   (least_bytes > limit_bytes ? "; no chunk is smaller, so raise the pool's limit"
                                              : "; ask for less or raise the pool's limit");
        text const chunk = "another chunk of " + base::bytes_text(needed_bytes);
        char const* const scope = "end a scope ('rewind' and 'clear' do as well, frees do not)";
        if (held_bytes > limit_bytes - needed_bytes) {
            text const kept = refused_bytes == 0 ? text()
                                                 : ", while the upstream refuses to take " + base::bytes_text(refused_bytes) +
                                                       " of free memory back";
            return "no free range is large enough and the pool's limit leaves no room for " + chunk + kept +
                   "; raise the pool's limit or " + (ends_together ? scope : "free something");
        }
        if (no_addresses)
            return "no free range is large enough and " + (lacks_addresses + chunk) + more_addresses;
        if (!reason.empty())
            return "no free range is large enough, and for " + chunk + " there is no room: " + reason;
        return text("no free range is large enough and the upstream (") + kind + " memory) has no room for " + chunk + "; " +
               (ends_together ? text(scope) + ", or free something in another pool"
                              : "free something, here or in another pool");
    }

    /// Why 'reserve' cannot get what it lacks, at once and in whole pages.
    text for_reserve() const {
        if (needed_bytes == 0 || base::add_overflows(held_bytes, needed_bytes))
            return "there are not so many addresses; reserve less";
        text const held = held_bytes == 0 ? text("it ") : "it holds " + base::exact_bytes_text(held_bytes) + " and ";
        text const needs = held + (held_bytes == 0 ? "needs " : "needs another ") + base::exact_bytes_text(needed_bytes);
        if (held_bytes + needed_bytes > most_bytes)
            return needs + there_is() + "reserve less";
        if (held_bytes + needed_bytes > limit_bytes)
            return needs + ", and its limit is " + base::exact_bytes_text(limit_bytes) +
                   "; reserve less or raise the pool's limit";
        if (no_addresses)
            return needs + ", and " + lacks_addresses + "that" + more_addresses;
        if (!reason.empty())
            return needs + ", and " + reason;
        return needs + ", and the upstream (" + kind + " memory) has no room for that; reserve less or free something "
                       "elsewhere";
    }

private:
    static constexpr char const* lacks_addresses = "the process has no more addresses for ";
    static constexpr char const* more_addresses =
        "; end pools that are not needed, unmap memory elsewhere, or raise the limit that the system sets ('ulimit -v')";

    text there_is() const {
        return text(", and of ") + kind + " memory there can be " + base::exact_bytes_text(most_bytes) + " in all; ";
    }
};

/// What is known of `held`, a held_chunks, that gets no chunk of `needed_bytes` bytes. Throws std::bad_alloc, and what the
/// upstream's 'refusal' throws.
template <class Held>
chunk_refusal refusal_of(Held const& held, std::size_t needed_bytes) {
    using upstream = std::decay_t<decltype(held.upstream())>;
    chunk_refusal known{base::name_of(upstream::space), needed_bytes, held.bytes(), held.limit_bytes(), held.refused_bytes(),
                        held.most_bytes()};
    if (needed_bytes == 0 || !held.has_room(needed_bytes))
        return known; // the upstream was not asked
    known.no_addresses = held.out_of_addresses();
    if constexpr (contract::holds<contract::has_can_acquire, upstream>)
        known.reason = held.upstream().refusal(needed_bytes);
    return known;
}

/// Why a block of that size and alignment finds no room. `usual`: the pool's default alignment. `ends_many`: whether the pool
/// can end many blocks at once. Throws as refusal_of.
template <class Supply, class Placement, class Held>
text block_refusal(Held const& held, std::size_t bytes, std::size_t alignment, std::size_t usual, bool ends_many) {
    chunk_refusal known = refusal_of(held, Supply::least_chunk_for(bytes, alignment));
    known.ends_together = ends_many && contract::holds<contract::has_mark, Placement, base::usage>;
    known.least_bytes = Supply::least_chunk_for(1, 1);
    text const reason = known.for_block();
    if (known.needed_bytes != 0)
        return alignment <= usual ? reason : reason + " (a block aligned to " + base::number_text(alignment) + ")";
    std::size_t const one = Placement::rounded(1, 1);
    bool const all_alike = Placement::rounded(one + 1, 1) == 0; // as placement::slab's
    return all_alike && bytes > one ? reason + ", as its blocks have " + base::exact_bytes_text(one) : reason;
}

/// Why the pool cannot hold `bytes` bytes. Throws as refusal_of.
template <class Held>
text reserve_refusal(Held const& held, std::size_t bytes) {
    std::size_t const now = held.bytes();
    return refusal_of(held, base::align_up(bytes > now ? bytes - now : 1, Held::granularity())).for_reserve();
}

} // namespace supply
} // namespace v0
} // namespace weir
