// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must an upstream have to fit its slot, and what may it have besides?
//
// An upstream is where a pool gets its memory from, in chunks.
//
// optional:  'granularity': chunks are multiples of this many bytes. 'usual_alignment': chunks of at least this many bytes
//            start at a multiple of it as a rule.
//            'device_number': the device of the memory.
//            'most_bytes': a request for more than this is refused without a try.
//            'can_acquire', 'refusal': whether it can ever hand out such a chunk, and why it has no room for one now.
//            Mapped memory, by 'extends': 'acquire' and 'extend' in pieces, 'move', 'wait_before_unmapping'; 'withdraw',
//            'restore', 'clear', 'abandon'; 'addresses_behind', 'out_of_addresses'. Such an upstream can add memory right
//            behind a chunk, put the memory of a free chunk elsewhere, and take the memory of a chunk away but keep its
//            addresses, as suspending a pool does. Its addresses may run out before its memory does.
// cost:      compile time only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class U>
using has_acquire = decltype(std::declval<U&>().acquire(std::size_t{}));
template <class U>
using has_release = when<noexcept(std::declval<U&>().release(std::declval<void*>(), std::size_t{})),
                         decltype(std::declval<U&>().release(std::declval<void*>(), std::size_t{}))>;
template <class U>
using has_usual_alignment = decltype(U::usual_alignment);
template <class U>
using has_device_number = decltype(std::declval<U const&>().device_number());
template <class U>
using has_extends = decltype(std::declval<U const&>().extends());
template <class U>
using has_most_bytes = decltype(std::declval<U const&>().most_bytes());
template <class U>
using has_can_acquire = decltype(std::declval<U const&>().can_acquire(std::size_t{}));

/// Checks a part for the upstream slot.
template <class U>
constexpr bool require_upstream() {
    static_assert(returns<void*, has_acquire, U>,
                  "weir: the upstream slot needs 'void* acquire(std::size_t bytes)', null when there is no more");
    static_assert(holds<has_release, U>,
                  "weir: the upstream slot needs 'bool release(void* chunk, std::size_t bytes) noexcept', false where "
                  "the chunk could not be given back; or void, where it always can");
    constexpr auto aligned = [](auto const& u) -> when<base::is_power_of_two(std::decay_t<decltype(u)>::alignment)> {};
    static_assert(accepts<U>(aligned),
                  "weir: the upstream slot needs 'static constexpr std::size_t alignment', a power of two");
    static_assert(holds<has_space, U>, "weir: the upstream slot needs 'static constexpr weir::memory_space space'");
    static_assert(absent_or<int, has_device_number, U>,
                  "weir: the upstream slot's upstream has 'device_number', which must be 'int device_number() const'");
    if constexpr (holds<has_usual_alignment, U>)
        static_assert(base::is_power_of_two(U::usual_alignment),
                      "weir: the upstream slot's upstream has 'usual_alignment', which must be a power of two");
    if constexpr (holds<has_extends, U>) {
        constexpr auto mapped = [](auto& u, auto const& asked)
            -> when<noexcept(asked.extends()) && noexcept(u.move(nullptr, 0, nullptr)) && noexcept(u.wait_before_unmapping()) &&
                    noexcept(u.withdraw(nullptr, 0)) && noexcept(u.clear(nullptr, 0)) && noexcept(u.abandon(nullptr, 0)) &&
                    noexcept(asked.addresses_behind(nullptr)) && noexcept(asked.out_of_addresses()) &&
                    all_are<bool, decltype(asked.extends()), decltype(u.extend(nullptr, 0, 0)),
                            decltype(u.move(nullptr, 0, nullptr)), decltype(u.withdraw(nullptr, 0)),
                            decltype(u.restore(nullptr, 0)), decltype(u.clear(nullptr, 0)),
                            decltype(asked.out_of_addresses())> &&
                    all_are<void*, decltype(u.acquire(0, 0))> &&
                    all_are<std::size_t, decltype(asked.addresses_behind(nullptr))>> {};
        static_assert(accepts<U, U const&>(mapped),
                      "weir: the upstream slot's upstream has 'extends', so it needs all that mapped memory can do: 'bool "
                      "extends() const noexcept', whether it can on its device; 'void* acquire(std::size_t bytes, std::size_t "
                      "piece_bytes)'; 'bool extend(void* end, std::size_t bytes, std::size_t piece_bytes)'; 'bool move(void* "
                      "chunk, std::size_t bytes, void* end) noexcept', false where the chunk is where it was; 'void "
                      "wait_before_unmapping() noexcept', after which memory is taken away only once no work is under way; "
                      "'bool withdraw(void* chunk, std::size_t bytes) noexcept', 'bool restore(void* chunk, std::size_t "
                      "bytes)', 'bool clear(void* chunk, std::size_t bytes) noexcept', which takes away what a 'restore' that "
                      "failed left; 'void abandon(void* chunk, std::size_t bytes) noexcept'; 'std::size_t "
                      "addresses_behind(void const* end) const noexcept' and 'bool out_of_addresses() const noexcept'");
    }
    if constexpr (holds<has_most_bytes, U>)
        static_assert(
            returns<std::size_t, has_most_bytes, U> && noexcept(std::declval<U const&>().most_bytes()),
            "weir: the upstream slot's upstream has 'most_bytes', which must be 'std::size_t most_bytes() const noexcept', "
            "what it can ever have out at most; SIZE_MAX where that is not known");
    if constexpr (holds<has_can_acquire, U>) {
        constexpr auto foretells = [](auto const& asked)
            -> when<noexcept(asked.can_acquire(0)) && all_are<bool, decltype(asked.can_acquire(0))>,
                    std::void_t<decltype(text(asked.refusal(0)))>> {};
        static_assert(accepts<U const>(foretells),
                      "weir: the upstream slot's upstream has 'can_acquire', which must be 'bool can_acquire(std::size_t "
                      "bytes) const noexcept', false where it can never hand out such a chunk; and it needs 'weir::text "
                      "refusal(std::size_t bytes) const', why it has no room for one now");
    }
    return true;
}

/// The device of an upstream that has `device_number()`; any_device for other upstreams. Throws as that member.
template <class Upstream>
int device_number_of(Upstream const& upstream) {
    if constexpr (holds<has_device_number, Upstream>)
        return upstream.device_number();
    else
        return any_device;
}

/// An upstream on the device of that number if its constructor takes one; else a default-constructed upstream.
template <class Upstream>
Upstream upstream_on([[maybe_unused]] int device) {
    if constexpr (holds<has_device_number, Upstream> && std::is_constructible_v<Upstream, int>)
        return Upstream(device);
    else
        return Upstream();
}

} // namespace contract
} // namespace v0
} // namespace weir
