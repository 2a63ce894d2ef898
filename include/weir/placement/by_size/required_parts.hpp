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
#include <type_traits>

namespace weir {
inline namespace v0 {
namespace placement::detail {

/// Whether `P` can live on slabs of another placement, as by_size's Small part does.
template <class P>
constexpr bool is_fed_by_slabs() {
    constexpr auto calls = [](auto& p, auto take, auto is_wanted)
        -> contract::when<contract::all_are<std::size_t, decltype(p.refill(0, 0)), decltype(p.grain(0))> &&
                              contract::all_are<base::range, decltype(p.take_at_hand(0, 0))> &&
                              contract::all_are<bool, decltype(p.surrender_kept(take))>,
                          std::void_t<decltype(p.prepare()), decltype(p.surrender(take)),
                                      decltype(p.surrender_blocks(is_wanted, take))>> {};
    return contract::accepts<P, void (*)(base::range), bool (*)(base::range)>(calls);
}
/// Whether slabs and chunks can return to `P`, by_size's Large part.
template <class P>
constexpr bool joins_freed_bytes() {
    constexpr auto calls = [](auto& p)
        -> contract::when<contract::all_are<bool, decltype(p.remove(base::range{}))> &&
                              contract::all_are<std::size_t, decltype(p.grain(0))>,
                          std::void_t<decltype(p.fence(base::range{})), decltype(p.reserve(0))>> {};
    return contract::accepts<P>(calls);
}

/// Checks what fills the slots of by_size.
template <class Small, class Large>
constexpr bool require_parts() {
    static_assert(is_fed_by_slabs<Small>(),
                  "weir: by_size's Small slot needs 'static std::size_t refill(std::size_t bytes, std::size_t "
                  "alignment)', 'static std::size_t grain(std::size_t bytes)', 'void prepare()', 'range take_at_hand(bytes, "
                  "alignment)', 'void surrender(TakeOver)', 'bool surrender_kept(TakeOver)' and 'void surrender_blocks(Wanted, "
                  "TakeOver)', since it lives on slabs of the Large part; use 'bins<>'");
    static_assert(
        joins_freed_bytes<Large>(),
        "weir: by_size's Large slot needs 'void fence(range)', 'bool remove(range)', 'void reserve(std::size_t gives)' and "
        "'static std::size_t grain(std::size_t bytes)', since slabs and chunks return to it; use 'best_fit<>'");
    return true;
}

} // namespace placement::detail
} // namespace v0
} // namespace weir
