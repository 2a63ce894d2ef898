// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the library ask whether a part has a member?
//
// A part is plugged in as a template argument; the place that it fills is called a slot. One of the 'require_' checks of this
// folder runs at compile time for each slot. It checks one clause at a time, and its message names the slot, the missing
// member and the member's signature. A clause is an alias that names an expression; 'holds' says whether the expression
// compiles for a part. Optional members are found in the same way: a part that cannot do something leaves the member out.
//
// invariant: a check demands what the code behind the slot uses, and no more.
// cost:      compile time only.
// not for:   meaning: the contract suites in tests/ show that a part keeps its promises.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_space.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <template <class...> class Clause, class Enable, class... Part>
struct holds_for : std::false_type {};
template <template <class...> class Clause, class... Part>
struct holds_for<Clause, std::void_t<Clause<Part...>>, Part...> : std::true_type {};

/// Whether the expression that `Clause` names compiles for `Part`.
template <template <class...> class Clause, class... Part>
inline constexpr bool holds = holds_for<Clause, void, Part...>::value;

template <bool Condition>
using when = std::enable_if_t<Condition>;
template <class T>
using size_type_of = when<std::is_convertible_v<T, std::size_t>>;
template <class T>
inline constexpr bool is_constant_bool = std::is_same_v<T, bool const>;

/// A clause that upstreams and pools share.
template <class T>
using says_space = std::integral_constant<memory_space, T::space>;

/// Clauses that reuse rules and pools share.
template <class T, class Block, class Stream>
using marks_users = decltype(std::declval<T&>().used_on(std::declval<Block>(), std::declval<Stream>()));
template <class T, class Block, class Stream>
using notes_last_uses = decltype(std::declval<T&>().last_used_on(std::declval<Block>(), std::declval<Stream>()));

} // namespace contract
} // namespace v0
} // namespace weir
