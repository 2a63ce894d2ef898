// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Why does a pool get no chunk?
//
// For a block the pool needs a chunk that has room for it, and for 'reserve' the bytes that it lacks. Its own limit may be in
// the way, or the upstream, which says by itself why where it can (upstream::from_pool names the pool below).
//
// invariant: what is judged is the chunk that the pool asked for.
// cost:      a text; refusals only.
// not for:   the words: they are in resource/report_text.hpp.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/resource/report_text.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// What the upstream of `held`, a held_chunks, lacks for a chunk of `chunk_bytes` bytes. Throws std::bad_alloc, and what the
/// upstream's 'refusal' throws.
template <class Held>
resource::upstream_lack lack_of(Held const& held, [[maybe_unused]] std::size_t chunk_bytes) {
    resource::upstream_lack lack{held.most_bytes(), held.out_of_addresses()};
    if constexpr (contract::holds<contract::has_chunk_refusal, std::decay_t<decltype(held.upstream())>>)
        lack.reason = held.upstream().refusal(chunk_bytes);
    return lack;
}

/// Why a block of that size and alignment finds no room; see refusal_text. `usual`: the pool's default alignment. `ends_many`:
/// whether the pool can end many blocks at once. Throws as lack_of.
template <class Supply, class Placement, class Held>
text block_refusal(Held const& held, std::size_t bytes, std::size_t alignment, std::size_t usual, bool ends_many) {
    std::size_t const chunk_bytes = Supply::least_chunk_for(bytes, alignment);
    bool const fits = chunk_bytes != 0 && held.has_room(chunk_bytes); // or else the limit is in the way
    text const reason = resource::refusal_text(chunk_bytes, held.bytes(), held.limit_bytes(), held.refused_bytes(),
                                     base::name_of(std::decay_t<decltype(held.upstream())>::space),
                                     ends_many && contract::holds<contract::has_mark, Placement, base::usage>,
                                     fits ? lack_of(held, chunk_bytes) : resource::upstream_lack{held.most_bytes()},
                                     Supply::least_chunk_for(1, 1));
    if (chunk_bytes != 0)
        return alignment <= usual ? reason : reason + " (a block aligned to " + base::number_text(alignment) + ")";
    std::size_t const one = Placement::rounded(1, 1);
    bool const all_alike = Placement::rounded(one + 1, 1) == 0; // as placement::slab's
    return all_alike && bytes > one ? reason + ", as its blocks have " + base::exact_bytes_text(one) : reason;
}

/// Why the pool cannot hold `bytes` bytes; see reserve_refusal_text. Throws as lack_of.
template <class Held>
text reserve_refusal(Held const& held, std::size_t bytes, char const* kind) {
    std::size_t const now = held.bytes();
    std::size_t const lacking = base::align_up(bytes > now ? bytes - now : 1, Held::granularity());
    bool const fits = lacking != 0 && held.has_room(lacking);
    return resource::reserve_refusal_text(lacking, now, held.limit_bytes(), kind,
                                fits ? lack_of(held, lacking) : resource::upstream_lack{held.most_bytes()});
}

} // namespace supply
} // namespace v0
} // namespace weir
