// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must the two parts of by_size have?
//
// The small part lives on slabs that the large part places, so each needs more than a placement does by itself.
//
// cost:      compile time only.
// not for:   the sentences: by_size says what is missing.

#include <weir/base/range.hpp>
#include <weir/contract/placement_slot.hpp>

#include <cstddef>
#include <utility>

namespace weir {
inline namespace v0 {
namespace placement::detail {

// What the Small part has besides, since it lives on slabs of the Large part.
template <class P>
using has_refill = decltype(P::refill(std::size_t{}, std::size_t{}));
template <class P>
using has_grain = decltype(P::grain(std::size_t{}));
template <class P>
using has_prepare = decltype(std::declval<P&>().prepare());
template <class P>
using has_surrender = decltype(std::declval<P&>().surrender(std::declval<void (*)(base::range)>()));
template <class P>
using has_surrender_kept = decltype(std::declval<P&>().surrender_kept(std::declval<void (*)(base::range)>()));
template <class P>
using has_surrender_blocks =
    decltype(std::declval<P&>().surrender_blocks(std::declval<bool (*)(base::range)>(), std::declval<void (*)(base::range)>()));
template <class P>
using has_reserve = decltype(std::declval<P&>().reserve(std::size_t{}));

template <class P>
inline constexpr bool is_fed_by_slabs =
    contract::returns<std::size_t, has_refill, P> && contract::returns<std::size_t, has_grain, P> &&
    contract::holds<has_prepare, P> && contract::returns<base::range, contract::has_take_at_hand, P> &&
    contract::holds<has_surrender, P> && contract::returns<bool, has_surrender_kept, P> &&
    contract::holds<has_surrender_blocks, P>;
template <class P>
inline constexpr bool joins_freed_bytes = contract::holds<contract::has_fence, P> &&
                                          contract::returns<bool, contract::has_remove, P> &&
                                          contract::returns<std::size_t, has_grain, P> && contract::holds<has_reserve, P>;

/// Checks what fills the slots of by_size.
template <class Small, class Large>
constexpr bool require_parts() {
    static_assert(is_fed_by_slabs<Small>,
                  "weir: by_size's Small slot needs 'static std::size_t refill(std::size_t bytes, std::size_t "
                  "alignment)', 'static std::size_t grain(std::size_t bytes)', 'void prepare()', 'range take_at_hand(bytes, "
                  "alignment)', 'void surrender(TakeOver)', 'bool surrender_kept(TakeOver)' and 'void surrender_blocks(Wanted, "
                  "TakeOver)', since it lives on slabs of the Large part; use 'bins<>'");
    static_assert(
        joins_freed_bytes<Large>,
        "weir: by_size's Large slot needs 'void fence(range)', 'bool remove(range)', 'void reserve(std::size_t gives)' and "
        "'static std::size_t grain(std::size_t bytes)', since slabs and chunks return to it; use 'best_fit<>'");
    return true;
}

} // namespace placement::detail
} // namespace v0
} // namespace weir
