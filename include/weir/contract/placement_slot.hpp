// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a placement have to fit its slot, and what may it have besides?
//
// A placement keeps ranges of free bytes and decides which of them becomes the next block.
//
// optional:  'is_small', with 'take_at_hand' and 'splinter_bytes': tells small blocks from others, and serves one without
//            cutting anything new. Splinters are free bytes in pieces that serve blocks of only one size.
//            'largest': the size of the largest block that can be taken, for reports.
//            'squeeze', with 'squeeze_needs': serves a block where memory is short, at whatever cost, and says how many bytes
//            of a fresh range that takes.
//            'expect_at_most': is told a pool's limit, by any thread. A reuse rule may have it too.
//            'fence': says where a chunk starts, so that free ranges do not join across it and the chunk can be given back.
//            'remove': takes a wholly free chunk out of the placement, so that it can be given back.
//            'for_each_free', with 'free_before', 'free_after', 'granularity' and a 'remove' that knows where the free range
//            starts: the free ranges, and what is free next to an address. Growth in place uses them to find out how little it
//            has to add, and which chunks could be moved.
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
using has_rounded = decltype(P::rounded(std::size_t{}, std::size_t{}));
template <class P>
using has_needs = decltype(P::needs(std::size_t{}, std::size_t{}, std::size_t{}));
template <class P>
using has_free_bytes = decltype(std::declval<P const&>().free_bytes());
template <class P>
using has_is_small = decltype(P::is_small(std::size_t{}, std::size_t{}));
template <class P>
using has_take_at_hand = decltype(std::declval<P&>().take_at_hand(std::size_t{}, std::size_t{}));
template <class P>
using has_splinter_bytes = decltype(std::declval<P const&>().splinter_bytes());
template <class P>
using has_largest = decltype(std::declval<P const&>().largest());
template <class P>
using has_squeeze = decltype(std::declval<P&>().squeeze(std::size_t{}, std::size_t{}));
template <class P>
using has_squeeze_needs = decltype(P::squeeze_needs(std::size_t{}, std::size_t{}, std::size_t{}));
template <class P>
using has_expect_at_most = decltype(std::declval<P&>().expect_at_most(std::size_t{}));
template <class P>
using has_fence = decltype(std::declval<P&>().fence(base::range{}));
template <class P, class... Start>
using has_remove = decltype(std::declval<P&>().remove(base::range{}, std::declval<Start>()...));
template <class P>
using has_free_before = decltype(std::declval<P const&>().free_before(std::size_t{}));
template <class P>
using has_free_after = decltype(std::declval<P const&>().free_after(std::size_t{}));
template <class P>
using has_for_each_free =
    decltype(std::declval<P&>().for_each_free(std::size_t{}, std::declval<void (*)(base::range)>()));
template <class P> // a placement that is derived from another inherits a 'sibling' of the other's type, and so has none
using has_sibling = when<std::is_same_v<decltype(std::declval<P const&>().sibling()), P>, P>;
template <class P>
using has_absorb = decltype(std::declval<P&>().absorb(std::declval<P&>()));
template <class P>
using has_lend = decltype(std::declval<P&>().lend(std::size_t{}, std::size_t{}));
template <class P>
using has_clear = decltype(std::declval<P&>().clear());

/// Checks a part for the placement slot.
template <class P>
constexpr bool require_placement() {
    static_assert(returns<base::range, has_take, P>,
                  "weir: the placement slot needs 'range take(std::size_t bytes, std::size_t alignment)'");
    static_assert(holds<has_give, P>, "weir: the placement slot needs 'void give(range)'");
    static_assert(holds<has_add, P>, "weir: the placement slot needs 'void add(range)'");
    static_assert(returns<std::size_t, has_rounded, P>,
                  "weir: the placement slot needs 'static constexpr std::size_t rounded(std::size_t bytes, std::size_t "
                  "alignment)'");
    static_assert(returns<std::size_t, has_needs, P>,
                  "weir: the placement slot needs 'static constexpr std::size_t needs(std::size_t bytes, std::size_t "
                  "alignment, std::size_t base_alignment)', the bytes of a chunk that surely has room for such a block");
    static_assert(returns<std::size_t, has_free_bytes, P>,
                  "weir: the placement slot needs 'std::size_t free_bytes() const'");
    static_assert(!holds<has_is_small, P> || (returns<bool, has_is_small, P> && returns<base::range, has_take_at_hand, P> &&
                                              returns<std::size_t, has_splinter_bytes, P>),
                  "weir: the placement slot's placement has 'is_small', which must be 'static bool is_small(std::size_t bytes, "
                  "std::size_t alignment)', so it needs 'range take_at_hand(std::size_t bytes, std::size_t alignment)' and "
                  "'std::size_t splinter_bytes() const'");
    static_assert(!holds<has_squeeze, P> ||
                      (returns<base::range, has_squeeze, P> && returns<std::size_t, has_squeeze_needs, P>),
                  "weir: the placement slot's placement has 'squeeze', which must be 'range squeeze(std::size_t bytes, "
                  "std::size_t alignment)', so it needs 'static std::size_t squeeze_needs(std::size_t bytes, std::size_t "
                  "alignment, std::size_t base_alignment)'");
    static_assert(absent_or<std::size_t, has_largest, P>,
                  "weir: the placement slot's placement has 'largest', which must be 'std::size_t largest() const'");
    static_assert(absent_or<bool, has_remove, P>,
                  "weir: the placement slot's placement has 'remove', which must be 'bool remove(range)', false where not all "
                  "of the range is free");
    static_assert(!holds<has_for_each_free, P> ||
                      (returns<std::size_t, has_free_before, P> && returns<std::size_t, has_free_after, P> &&
                       returns<bool, has_remove, P, std::size_t> && returns<std::size_t const, has_granularity, P>),
                  "weir: the placement slot's placement has 'for_each_free', so it needs 'std::size_t free_before(std::size_t "
                  "offset) const', 'free_after' like it, 'bool remove(range, std::size_t start)' and 'static constexpr "
                  "std::size_t granularity'");
    static_assert(holds<has_absorb, P> == returns<base::range, has_lend, P>,
                  "weir: the placement slot needs both or none of 'void absorb(Placement&)' and 'range lend(std::size_t bytes, "
                  "std::size_t alignment)'");
    static_assert(!holds<has_mark, P, base::usage> || returns<base::usage, has_rewind, P, base::usage>,
                  "weir: the placement slot's placement has 'mark', so it needs 'usage rewind(Mark, usage)', which returns "
                  "what is in use from then on");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
