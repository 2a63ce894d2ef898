// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a placement have to fit its slot, and what may it have besides?
//
// A placement keeps ranges of free bytes and decides which of them becomes the next block.
//
// optional:  'largest': the size of the largest block that can be taken, for reports.
//            'remove': takes a wholly free chunk out of the placement, so that it can be given back.
//            Two sorts of blocks, by 'is_small': 'take_at_hand' serves a small block without cutting anything new;
//            'splinter_bytes' are free bytes in pieces that serve blocks of only one size; 'expect_at_most' is told a pool's
//            limit, by any thread.
//            'squeeze', with 'squeeze_needs': serves a block where memory is short, at whatever cost, and says how many bytes
//            of a fresh range that takes.
//            Chunks, by 'fence', which says where one starts, so that free ranges do not join across it: 'for_each_free',
//            'free_before', 'free_after', 'granularity', and a 'remove' that knows where the free range starts. Growth in place
//            uses them to find out how little it has to add, and which chunks could be moved.
//            'sibling': makes an empty placement whose blocks may mix with this one's, so that each stream can have its own.
//            Mixing, by 'absorb', which moves all free bytes of a sibling here: 'lend' takes out a range for a sibling that
//            needs a block.
//            Scopes, by 'mark', which names a point in time: 'rewind' ends all blocks that were taken after it, 'clear' all.
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
using has_is_small = decltype(P::is_small(std::size_t{}, std::size_t{}));
template <class P>
using has_squeeze = decltype(std::declval<P&>().squeeze(std::size_t{}, std::size_t{}));
template <class P>
using has_largest = decltype(std::declval<P const&>().largest());
template <class P>
using has_fence = decltype(std::declval<P&>().fence(base::range{}));
template <class P>
using has_remove = decltype(std::declval<P&>().remove(base::range{}));
template <class P> // a placement that is derived from another inherits a 'sibling' of the other's type, and so has none
using has_sibling = when<std::is_same_v<decltype(std::declval<P const&>().sibling()), P>, P>;
template <class P>
using has_absorb = decltype(std::declval<P&>().absorb(std::declval<P&>()));

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
    constexpr auto needs = [](auto const& p) -> when<all_are<std::size_t, decltype(p.needs(0, 0, 0))>> {};
    static_assert(accepts<P>(needs),
                  "weir: the placement slot needs 'static constexpr std::size_t needs(std::size_t bytes, std::size_t "
                  "alignment, std::size_t base_alignment)', the bytes of a chunk that surely has room for such a block");
    constexpr auto counts = [](auto const& p) -> when<all_are<std::size_t, decltype(p.free_bytes())>> {};
    static_assert(accepts<P>(counts),
                  "weir: the placement slot needs 'std::size_t free_bytes() const'");
    if constexpr (holds<has_is_small, P>) {
        constexpr auto sorts = [](auto& p, auto const& asked)
            -> when<all_are<bool, decltype(p.is_small(0, 0))> &&
                        all_are<base::range, decltype(p.take_at_hand(0, 0))> &&
                        all_are<std::size_t, decltype(asked.splinter_bytes())>,
                    std::void_t<decltype(p.expect_at_most(0))>> {};
        static_assert(accepts<P, P const&>(sorts),
                      "weir: the placement slot's placement has 'is_small', which must be 'static bool is_small(std::size_t "
                      "bytes, std::size_t alignment)', so it needs 'range take_at_hand(std::size_t bytes, std::size_t "
                      "alignment)', 'std::size_t splinter_bytes() const' and 'void expect_at_most(std::size_t limit_bytes)'");
    }
    if constexpr (holds<has_squeeze, P>) {
        constexpr auto squeezes = [](auto& p) -> when<all_are<base::range, decltype(p.squeeze(0, 0))> &&
                                                      all_are<std::size_t, decltype(p.squeeze_needs(0, 0, 0))>> {};
        static_assert(accepts<P>(squeezes),
                      "weir: the placement slot's placement has 'squeeze', which must be 'range squeeze(std::size_t bytes, "
                      "std::size_t alignment)', so it needs 'static std::size_t squeeze_needs(std::size_t bytes, std::size_t "
                      "alignment, std::size_t base_alignment)'");
    }
    static_assert(absent_or<std::size_t, has_largest, P>,
                  "weir: the placement slot's placement has 'largest', which must be 'std::size_t largest() const'");
    static_assert(absent_or<bool, has_remove, P>,
                  "weir: the placement slot's placement has 'remove', which must be 'bool remove(range)', false where not all "
                  "of the range is free");
    if constexpr (holds<has_fence, P>) {
        constexpr auto chunked = [](auto& p, auto const& asked)
            -> when<all_are<std::size_t, decltype(asked.free_before(0)), decltype(asked.free_after(0))> &&
                        all_are<bool, decltype(p.remove(base::range{}, std::size_t{}))>,
                    std::void_t<decltype(p.for_each_free(0, std::declval<void (*)(base::range)>()))>> {};
        static_assert(accepts<P, P const&>(chunked) && returns<std::size_t const, has_granularity, P>,
                      "weir: the placement slot's placement has 'fence', so it needs 'void for_each_free(std::size_t "
                      "least_bytes, Visit)', 'std::size_t free_before(std::size_t offset) const', 'free_after' like it, 'bool "
                      "remove(range, std::size_t start)' and 'static constexpr std::size_t granularity'");
    }
    constexpr auto lends = [](auto& p) -> when<all_are<base::range, decltype(p.lend(0, 0))>> {};
    static_assert(holds<has_absorb, P> == accepts<P>(lends),
                  "weir: the placement slot needs both or none of 'void absorb(Placement&)' and 'range lend(std::size_t bytes, "
                  "std::size_t alignment)'");
    if constexpr (holds<has_mark, P, base::usage>) {
        constexpr auto ends = [](auto& p, base::usage now)
            -> when<all_are<base::usage, decltype(p.rewind(p.mark(now), now))>, std::void_t<decltype(p.clear())>> {};
        static_assert(accepts<P, base::usage>(ends),
                      "weir: the placement slot's placement has 'mark', so it needs 'usage rewind(Mark, usage)', which returns "
                      "what is in use from then on, and 'void clear()'");
    }
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
