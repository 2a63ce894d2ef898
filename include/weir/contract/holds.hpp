// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the library ask whether a part has a member?
//
// A part is plugged in as a template argument; the place that it fills is called a slot. A clause names a member: the alias
// 'has_trim' is the type that a call of 'trim' returns, with arguments as the library passes them. 'holds' says whether that
// call compiles for a part, 'returns' whether it also returns what it should. For each slot one of the 'require_' checks of
// this folder runs at compile time. Its messages name the slot, what is missing, and the signatures.
//
// What is optional comes as an ability: all of its members, or none. The clause of an ability names the member by which the
// library knows it. The check asks for the others with a lambda that calls them ('accepts'), and so for whatever no other place
// asks for. A part that has the member, but wrongly or without the others, is told so.
//
// invariant: a clause makes the call that the code behind the slot makes.
// cost:      compile time only.
// not for:   meaning: the contract suites in tests/ show that a part keeps its promises.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>

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

template <class Wanted, template <class...> class Clause, class Enable, class... Part>
struct returns_for : std::false_type {};
template <class Wanted, template <class...> class Clause, class... Part>
struct returns_for<Wanted, Clause, std::void_t<Clause<Part...>>, Part...> : std::is_same<Clause<Part...>, Wanted> {};

/// Whether the member that `Clause` names is there and of type `Wanted`; for a function: returns it.
template <class Wanted, template <class...> class Clause, class... Part>
inline constexpr bool returns = returns_for<Wanted, Clause, void, Part...>::value;

/// The same for an optional member: it may be absent.
template <class Wanted, template <class...> class Clause, class... Part>
inline constexpr bool absent_or = !holds<Clause, Part...> || returns<Wanted, Clause, Part...>;

/// Whether `calls`, a lambda whose return type names calls, can be made with a `Part&` and `More`.
template <class Part, class... More, class Calls>
constexpr bool accepts(Calls const&) noexcept {
    return std::is_invocable_v<Calls const&, Part&, More...>;
}
/// Whether each of `Types` is `Wanted`.
template <class Wanted, class... Types>
inline constexpr bool all_are = (std::is_same_v<Wanted, Types> && ...);

/// `Type`, where `Condition` holds.
template <bool Condition, class Type = void>
using when = std::enable_if_t<Condition, Type>;

// Members that parts of several slots have. What a slot's member takes besides is a pack: 'has_take<Placement>' takes no
// stream, 'has_take<Rule, stream_ref>' does. A placement's 'give' may throw, since the rule that calls it sees to that.
template <class T>
using has_space = std::integral_constant<memory_space, T::space>;
template <class T>
using has_granularity = decltype(T::granularity);
template <class T>
using has_thread_safe = decltype(T::thread_safe);
template <class T, class... Stream>
using has_take = decltype(std::declval<T&>().take(std::size_t{}, std::size_t{}, std::declval<Stream>()...));
template <class T, class... Stream>
using has_give = when<noexcept(std::declval<T&>().give(base::range{}, std::declval<Stream>()...)) || sizeof...(Stream) == 0>;
template <class T, class... More>
using has_add = decltype(std::declval<T&>().add(base::range{}, std::declval<More>()...));
template <class T>
using has_settle = decltype(std::declval<T&>().settle());
template <class T, class Block, class Stream> // with 'last_used_on'
using has_used_on = decltype(std::declval<T&>().used_on(std::declval<Block>(), std::declval<Stream>()));
template <class T, class... Usage> // with 'rewind'
using has_mark = decltype(std::declval<T&>().mark(std::declval<Usage>()...));

} // namespace contract
} // namespace v0
} // namespace weir
