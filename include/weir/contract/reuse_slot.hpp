// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a reuse rule have to fit its slot, and what may it have besides?
//
// A reuse rule decides when a freed block may be handed out again, and to which stream. A rule is a class with a nested
// template 'over<Placement>', which does the work; it is made for a device. Most clauses here are about 'over'.
//
// optional:  'borrow': takes memory that was freed on streams which are still at work.
//            'gather': brings all free memory that a stream may have to that stream, where it joins. It needs 'reclaim',
//            which settles when much memory can be had in no other way. With 'borrow' it also needs 'wait', which blocks until
//            freed memory may be reused, and 'unsettled_bytes', the bytes that only 'settle' would free.
//            'strand': takes a block back whose last use nobody knows; only 'settle' frees it.
//            'visit_usable', 'visit_unused': show a pool that grows in place the placements whose free memory a stream may
//            have, and those whose free memory no work uses.
//            'used_on', 'last_used_on': say that another stream uses a block, so that its free waits for that stream.
//            'placement', 'counts': for rules whose blocks can all end at once.
// cost:      compile time only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/range.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class R, class Placement>
using binds = typename R::template over<Placement>;
template <class R>
using says_what_it_promises = when<is_constant_bool<decltype(R::thread_safe)> &&
                                   is_constant_bool<decltype(R::orders_streams)> &&
                                   is_constant_bool<decltype(R::waits_before_growing)>>;

// Clauses about the rule's 'over<Placement>'.
template <class R, class Stream>
using reuse_takes =
    when<std::is_same_v<decltype(std::declval<R&>().take(std::size_t{}, std::size_t{}, std::declval<Stream>())), base::range>>;
template <class R, class Stream>
using reuse_gives = when<noexcept(std::declval<R&>().give(base::range{}, std::declval<Stream>()))>;
template <class R, class Stream>
using reuse_adds = decltype(std::declval<R&>().add(base::range{}, std::declval<Stream>()));
template <class R, class Stream>
using adds_in_place = decltype(std::declval<R&>().add(base::range{}, std::declval<Stream>(), bool{}));
template <class R>
using knows_devices = decltype(R(0));
template <class R>
using settles = decltype(std::declval<R&>().settle());
template <class R, class Stream>
using borrows = decltype(std::declval<R&>().borrow(std::size_t{}, std::size_t{}, std::declval<Stream>()));
template <class R>
using strands = decltype(std::declval<R&>().strand(base::range{}));
template <class R, class Stream>
using gathers = decltype(std::declval<R&>().gather(std::declval<Stream>(), bool{}));
template <class R, class Stream, class Placement>
using shows_free = decltype(std::declval<R&>().visit_usable(std::declval<Stream>(), std::declval<void (*)(Placement&)>()),
                            std::declval<R&>().visit_unused(std::declval<bool (*)(Placement&)>(), std::size_t{}));
template <class R>
using reclaims = decltype(std::declval<R&>().reclaim());
template <class R>
using waits = when<std::is_same_v<decltype(std::declval<R&>().wait()), bool>>;
template <class R>
using counts_unsettled = size_type_of<decltype(std::declval<R&>().unsettled_bytes())>;
template <class R>
using counts_uses = when<std::is_same_v<decltype(std::declval<R&>().used()), base::usage>>;
template <class R>
using ends_many = decltype(std::declval<R&>().placement(), std::declval<R&>().counts());

/// Checks a rule for the reuse slot, before it is bound to a placement.
template <class R, class Placement>
constexpr bool require_rule() {
    static_assert(holds<binds, R, Placement>, "weir: the reuse slot needs a nested 'template <class Placement> class over'");
    static_assert(holds<says_what_it_promises, R>,
                  "weir: the reuse slot needs 'static constexpr bool' members 'thread_safe', 'orders_streams' and "
                  "'waits_before_growing'");
    if constexpr (holds<binds, R, Placement> && holds<says_what_it_promises, R>)
        if constexpr (R::waits_before_growing)
            static_assert(holds<borrows, typename R::template over<Placement>, on_host_t>,
                          "weir: the reuse slot's rule says 'waits_before_growing', so its 'over' needs 'range "
                          "borrow(std::size_t bytes, std::size_t alignment, stream_ref)'");
    return true;
}

/// Checks `R`, a rule's 'over<Placement>', for the reuse slot.
template <class R, class Stream>
constexpr bool require_reuse() {
    static_assert(holds<reuse_takes, R, Stream>, "weir: the reuse slot's 'over' needs 'range take(std::size_t bytes, "
                                                 "std::size_t alignment, stream_ref)'");
    static_assert(holds<reuse_gives, R, Stream>,
                  "weir: the reuse slot's 'over' needs 'void give(range, stream_ref) noexcept'");
    static_assert(holds<reuse_adds, R, Stream>, "weir: the reuse slot's 'over' needs 'void add(range, stream_ref)'");
    static_assert(holds<settles, R>, "weir: the reuse slot's 'over' needs 'void settle()'");
    static_assert(holds<knows_devices, R>, "weir: the reuse slot's 'over' needs a constructor 'over(int device)'");
    static_assert(holds<counts_uses, R>, "weir: the reuse slot's 'over' needs 'usage used()'");
    static_assert(
        holds<marks_users, R, base::range, Stream> == holds<notes_last_uses, R, base::range, Stream>,
        "weir: the reuse slot's 'over' needs both or none of 'void used_on(range, stream_ref)', which marks a stream for "
        "whose work until the free 'give' waits, and 'void last_used_on(range, stream_ref)', for its work so far");
    if constexpr (holds<gathers, R, Stream>)
        static_assert(holds<reclaims, R>, "weir: the reuse slot's 'over' has 'gather', so it needs 'void reclaim()'");
    if constexpr (holds<gathers, R, Stream> && holds<borrows, R, Stream>) {
        static_assert(holds<waits, R>, "weir: the reuse slot's 'over' has 'gather' and 'borrow', so it needs 'bool "
                                       "wait()', true where something was in flight");
        static_assert(holds<counts_unsettled, R>,
                      "weir: the reuse slot's 'over' has 'gather' and 'borrow', so it needs 'std::size_t "
                      "unsettled_bytes()', which 'settle' would free");
    }
    return true;
}

/// Checks a rule's 'over<Placement>' for a pool that grows in place.
template <class R, class Stream>
constexpr bool require_reuse_in_place() {
    static_assert(holds<adds_in_place, R, Stream>,
                  "weir: the reuse slot's 'over' has 'visit_usable', so over an upstream that grows in place it needs 'void "
                  "add(range, stream_ref, bool joins)'; true where free bytes before the range may join it");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
