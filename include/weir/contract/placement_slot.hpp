// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a placement have to fit its slot, and what may it have besides?
//
// A placement keeps ranges of free bytes and decides which of them becomes the next block.
//
// optional:  'take_at_hand', with 'is_small' and 'splinter_bytes': serves a small block without cutting anything new.
//            Splinters are free bytes in pieces that serve blocks of only one size.
//            'largest': the size of the largest block that can be taken, for reports.
//            'fence': says where a chunk starts, so that free ranges do not join across it and the chunk can be given back.
//            'remove': takes a wholly free chunk out of the placement, so that it can be given back.
//            'free_before', 'free_after', 'for_each_free': what is free next to an address, and the free ranges. Growth in
//            place uses them to find out how little it has to add, and which chunks could be moved.
//            'sibling': makes an empty placement whose blocks may mix with this one's, so that each stream can have its own.
//            'absorb': moves all free bytes of a sibling here. 'lend': takes out a range for a sibling that needs a block.
//            'mark', 'rewind': name a point in time, and end all blocks that were taken after it.
//            'clear': ends all blocks.
// cost:      compile time only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/range.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class P>
using takes = when<std::is_same_v<decltype(std::declval<P&>().take(std::size_t{}, std::size_t{})), base::range>>;
template <class P>
using gives = decltype(std::declval<P&>().give(base::range{}));
template <class P>
using adds = decltype(std::declval<P&>().add(base::range{}));
template <class P>
using rounds = when<std::is_same_v<decltype(P::rounded(std::size_t{}, std::size_t{})), std::size_t>>;
template <class P>
using counts_free = size_type_of<decltype(std::declval<P const&>().free_bytes())>;
template <class P>
using splinters =
    decltype(P::is_small(0, 0), std::declval<P&>().take_at_hand(0, 0).bytes + std::declval<P const&>().splinter_bytes());
template <class P>
using knows_largest = size_type_of<decltype(std::declval<P const&>().largest())>;
template <class P>
using fences_chunks = decltype(std::declval<P&>().fence(base::range{}));
template <class P>
using removes = when<std::is_same_v<decltype(std::declval<P&>().remove(base::range{})), bool>>;
template <class P>
using knows_free =
    decltype(std::declval<P const&>().free_before(std::size_t{}), std::declval<P const&>().free_after(std::size_t{}),
             std::declval<P&>().remove(base::range{}, std::size_t{}),
             std::declval<P&>().for_each_free(std::size_t{}, std::declval<void (*)(base::range)>()));
template <class P>
using makes_sibling = when<std::is_same_v<decltype(std::declval<P const&>().sibling()), P>>;
template <class P>
using absorbs = decltype(std::declval<P&>().absorb(std::declval<P&>()));
template <class P>
using lends = when<std::is_same_v<decltype(std::declval<P&>().lend(std::size_t{}, std::size_t{})), base::range>>;
template <class P>
using marks = when<
    std::is_same_v<decltype(std::declval<P&>().rewind(std::declval<P&>().mark(base::usage{}), base::usage{})), base::usage>>;
template <class P>
using clears = decltype(std::declval<P&>().clear());
template <class P>
using says_needs = when<std::is_same_v<decltype(P::needs(std::size_t{}, std::size_t{}, std::size_t{})), std::size_t>>;

template <class Placement>
inline constexpr bool has_largest = holds<knows_largest, Placement>;
template <class Placement>
inline constexpr bool fences = holds<fences_chunks, Placement>;
template <class Placement>
inline constexpr bool has_remove = holds<removes, Placement>;
template <class Placement>
inline constexpr bool has_free_ranges = holds<knows_free, Placement>;
template <class Placement>
inline constexpr bool has_sibling = holds<makes_sibling, Placement>;
template <class Placement>
inline constexpr bool migrates = holds<absorbs, Placement>&& holds<lends, Placement>;
template <class Placement>
inline constexpr bool has_mark = holds<marks, Placement>;
template <class Placement>
inline constexpr bool has_clear = holds<clears, Placement>;

/// Checks a part for the placement slot.
template <class P>
constexpr bool require_placement() {
    static_assert(holds<takes, P>, "weir: the placement slot needs 'range take(std::size_t bytes, std::size_t alignment)'");
    static_assert(holds<gives, P>, "weir: the placement slot needs 'void give(range)'");
    static_assert(holds<adds, P>, "weir: the placement slot needs 'void add(range)'");
    static_assert(holds<rounds, P>, "weir: the placement slot needs 'static constexpr std::size_t "
                                    "rounded(std::size_t bytes, std::size_t alignment)'");
    static_assert(holds<says_needs, P>,
                  "weir: the placement slot needs 'static constexpr std::size_t needs(std::size_t bytes, std::size_t "
                  "alignment, std::size_t base_alignment)', the bytes of a chunk that surely has room for such a block");
    static_assert(holds<counts_free, P>, "weir: the placement slot needs 'std::size_t free_bytes() const'");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
