// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must an upstream have to fit its slot, and what may it have besides?
//
// An upstream is where a pool gets its memory from, in chunks.
//
// optional:  'granularity': chunks are multiples of this many bytes. 'usual_alignment': chunks of at least this many bytes
//            start at a multiple of it as a rule.
//            'device_number': the device of the memory.
//            'extends', which needs 'acquire' and 'extend' in pieces, 'move' and 'wait_before_unmapping': whether the
//            upstream can add memory right behind a chunk, and put the memory of a free chunk elsewhere.
//            'most_bytes', 'can_acquire': a request for more than this, or of which this says no, is refused without a try.
//            'refusal': why it has no room for a chunk.
//            'addresses_behind', 'out_of_addresses': for upstreams whose addresses may run out before their memory does.
//            'withdraw', 'restore', 'abandon': take the memory of a chunk away but keep its addresses, put memory there
//            again, or give the addresses up. Suspending a pool uses them.
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

template <class U, class... Piece>
using has_acquire = decltype(std::declval<U&>().acquire(std::size_t{}, std::declval<Piece>()...));
template <class U>
using has_release = when<noexcept(std::declval<U&>().release(std::declval<void*>(), std::size_t{})),
                         decltype(std::declval<U&>().release(std::declval<void*>(), std::size_t{}))>;
template <class U>
using has_alignment = when<base::is_power_of_two(U::alignment)>;
template <class U>
using has_usual_alignment = decltype(U::usual_alignment);
template <class U>
using has_device_number = decltype(std::declval<U const&>().device_number());
template <class U>
using has_extends = decltype(std::declval<U const&>().extends());
template <class U>
using has_extends_at_once =
    when<noexcept(std::declval<U const&>().extends()), decltype(std::declval<U const&>().extends())>;
template <class U>
using has_extend = decltype(std::declval<U&>().extend(std::declval<void*>(), std::size_t{}, std::size_t{}));
template <class U>
using has_move = when<noexcept(std::declval<U&>().move(std::declval<void*>(), std::size_t{}, std::declval<void*>())),
                      decltype(std::declval<U&>().move(std::declval<void*>(), std::size_t{}, std::declval<void*>()))>;
template <class U>
using has_wait_before_unmapping = when<noexcept(std::declval<U&>().wait_before_unmapping())>;
template <class U>
using has_most_bytes = decltype(std::declval<U const&>().most_bytes());
template <class U>
using has_can_acquire = decltype(std::declval<U const&>().can_acquire(std::size_t{}));
template <class U>
using has_chunk_refusal = decltype(text(std::declval<U const&>().refusal(std::size_t{})));
template <class U>
using has_addresses_behind = decltype(std::declval<U const&>().addresses_behind(std::declval<void const*>()));
template <class U>
using has_out_of_addresses = when<noexcept(std::declval<U const&>().out_of_addresses()),
                                  decltype(std::declval<U const&>().out_of_addresses())>;
template <class U>
using has_withdraw = decltype(std::declval<U&>().withdraw(std::declval<void*>(), std::size_t{}));
template <class U>
using has_restore = decltype(std::declval<U&>().restore(std::declval<void*>(), std::size_t{}));
template <class U>
using has_abandon = when<noexcept(std::declval<U&>().abandon(std::declval<void*>(), std::size_t{}))>;

/// Checks a part for the upstream slot.
template <class U>
constexpr bool require_upstream() {
    static_assert(returns<void*, has_acquire, U>,
                  "weir: the upstream slot needs 'void* acquire(std::size_t bytes)', null when there is no more");
    static_assert(holds<has_release, U>,
                  "weir: the upstream slot needs 'bool release(void* chunk, std::size_t bytes) noexcept', false where "
                  "the chunk could not be given back; or void, where it always can");
    static_assert(holds<has_alignment, U>,
                  "weir: the upstream slot needs 'static constexpr std::size_t alignment', a power of two");
    static_assert(holds<has_space, U>, "weir: the upstream slot needs 'static constexpr weir::memory_space space'");
    static_assert(absent_or<int, has_device_number, U>,
                  "weir: the upstream slot's upstream has 'device_number', which must be 'int device_number() const'");
    if constexpr (holds<has_usual_alignment, U>)
        static_assert(base::is_power_of_two(U::usual_alignment),
                      "weir: the upstream slot's upstream has 'usual_alignment', which must be a power of two");
    static_assert(!holds<has_extends, U> || returns<bool, has_extends_at_once, U>,
                  "weir: the upstream slot's upstream has 'extends', which must be 'bool extends() const noexcept', whether "
                  "it can on its device");
    if constexpr (holds<has_extends, U>) {
        static_assert(returns<void*, has_acquire, U, std::size_t> && returns<bool, has_extend, U>,
                      "weir: the upstream slot's upstream has 'extends', so it needs 'void* acquire(std::size_t bytes, "
                      "std::size_t piece_bytes)' and 'bool extend(void* end, std::size_t bytes, std::size_t piece_bytes)'");
        static_assert(returns<bool, has_move, U>,
                      "weir: the upstream slot's upstream has 'extends', so it needs 'bool move(void* chunk, std::size_t "
                      "bytes, void* end) noexcept', false where the chunk is where it was");
        static_assert(holds<has_wait_before_unmapping, U>,
                      "weir: the upstream slot's upstream has 'extends', so it needs 'void wait_before_unmapping() noexcept', "
                      "after which memory is taken away only once no work is under way");
    }
    if constexpr (holds<has_most_bytes, U>)
        static_assert(
            returns<std::size_t, has_most_bytes, U> && noexcept(std::declval<U const&>().most_bytes()),
            "weir: the upstream slot's upstream has 'most_bytes', which must be 'std::size_t most_bytes() const noexcept', "
            "what it can ever have out at most; SIZE_MAX where that is not known");
    if constexpr (holds<has_can_acquire, U>)
        static_assert(returns<bool, has_can_acquire, U> && noexcept(std::declval<U const&>().can_acquire(std::size_t{})),
                      "weir: the upstream slot's upstream has 'can_acquire', which must be 'bool can_acquire(std::size_t "
                      "bytes) const noexcept', false where it can never hand out such a chunk");
    if constexpr (holds<has_addresses_behind, U>)
        static_assert(returns<std::size_t, has_addresses_behind, U> &&
                          noexcept(std::declval<U const&>().addresses_behind(nullptr)) &&
                          returns<bool, has_out_of_addresses, U>,
                      "weir: the upstream slot's upstream has 'addresses_behind', so it needs 'std::size_t "
                      "addresses_behind(void const* end) const noexcept' and 'bool out_of_addresses() const noexcept'");
    if constexpr (holds<has_withdraw, U>)
        static_assert(returns<bool, has_withdraw, U> && noexcept(std::declval<U&>().withdraw(nullptr, std::size_t{})) &&
                          returns<bool, has_restore, U> && holds<has_abandon, U>,
                      "weir: the upstream slot's upstream has 'withdraw', so it needs 'bool withdraw(void* chunk, std::size_t "
                      "bytes) noexcept', 'bool restore(void* chunk, std::size_t bytes)' and 'void abandon(void* chunk, "
                      "std::size_t bytes) noexcept'");
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
