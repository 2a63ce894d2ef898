// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a container be filled from, and which work comes before the copy?
//
// From whatever has its elements side by side in memory: a std::vector, an array, a span, another container. A source that has
// a stream of its own is an owner: work of that stream may still write the elements, and later work there may overwrite them.
// So the copy has to be in order with that stream. An owner is recognised by its member 'placed' or 'stream', whatever its
// type: the containers of pools have them, those that never move, arrays that were imported, and other libraries' containers.
// If there is only 'stream', a default stream is taken for that of the current device.
//
// invariant: what has a stream of its own is never taken for an address and a size alone.
// cost:      none at run time.
// not for:   a span of an owner's elements, which does not know the stream: order the streams first ('order_after').

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/container/owned/contents.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace container::detail {

// These do what std::data and std::size do. The standard header for those costs a tenth of a second of compile time.
template <class Range>
constexpr auto data_of(Range const& source) -> decltype(source.data()) {
    return source.data();
}
template <class T, std::size_t Count>
constexpr T const* data_of(T const (&source)[Count]) noexcept {
    return source;
}
template <class Range>
constexpr auto size_of(Range const& source) -> decltype(source.size()) {
    return source.size();
}
template <class T, std::size_t Count>
constexpr std::size_t size_of(T const (&)[Count]) noexcept {
    return Count;
}

// Void if the elements of Range lie together in memory and have type T; otherwise no type.
template <class Range>
using element_of = std::remove_cv_t<std::remove_pointer_t<decltype(data_of(std::declval<Range const&>()))>>;
template <class Range, class T>
using if_holds = std::enable_if_t<std::is_same_v<element_of<Range>, T> && sizeof(size_of(std::declval<Range const&>())) != 0>;

template <class Range, class = void>
inline constexpr bool is_placed = false;
template <class Range>
inline constexpr bool is_placed<Range, std::void_t<decltype(std::declval<Range const&>().placed())>> = true;
template <class Range, class = void>
inline constexpr bool is_on_stream = false;
template <class Range>
inline constexpr bool
    is_on_stream<Range, std::enable_if_t<std::is_convertible_v<decltype(std::declval<Range const&>().stream()), stream_ref> &&
                                         sizeof(std::declval<Range const&>().data()) != 0>> = true;

/// Whether a source has a stream of its own.
template <class Range>
inline constexpr bool is_owner = is_placed<Range> || is_on_stream<Range>;

template <class Owner>
order::placed_stream placed_of(Owner const& owner) {
    if constexpr (is_placed<Owner>)
        return owner.placed();
    else
        return order::placed_stream::now(owner.stream());
}

template <memory_space Space, class Owner>
std::true_type is_container(contents<Space, Owner> const&);
std::false_type is_container(...);

/// Whether a target's work has to be waited for: an owner's, but not that of memory which the host writes at once.
template <class Range>
constexpr bool orders_its_work() noexcept {
    if constexpr (decltype(is_container(std::declval<Range const&>()))::value)
        return !base::host_accessible(Range::space);
    else
        return is_owner<Range>;
}

/// Makes `own` wait for the work on the stream of a target.
template <class Range>
void wait_for_work_of(Range const& target, order::placed_stream const& own) {
    if constexpr (orders_its_work<Range>()) {
        order::placed_stream const user = placed_of(target);
        if (!user.stream.is_host()) // whose work is done
            order_after(own, user);
    }
}

template <class Pointer>
constexpr std::size_t bytes_each() noexcept {
    using pointed = std::remove_pointer_t<Pointer>;
    if constexpr (std::is_void_v<pointed>)
        return 1;
    else
        return sizeof(pointed);
}

/// What is copied from an owner: its bytes, and the stream that works with them. `own`: the target's stream.
template <class Owner>
copy_source source_of(Owner const& from, order::placed_stream const& own) {
    if constexpr (decltype(is_container(from))::value) {
        return contents_source(from);
    } else {
        order::placed_stream const user = placed_of(from);
        return {from.data(), from.size() * bytes_each<decltype(from.data())>(), user.stream.is_host() ? own : user, any_device};
    }
}

} // namespace container::detail
} // namespace v0
} // namespace weir
