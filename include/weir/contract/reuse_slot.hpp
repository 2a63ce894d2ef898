// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a reuse rule have to fit its slot, and what may it have besides?
//
// A reuse rule decides when a freed block may be handed out again, and to which stream. A rule is a class with a nested
// template 'over<Placement>', which does the work; it is made for a device. Most clauses here are about 'over'.
//
// optional:  'fits<Placement>': whether the rule works over such a placement (fitting_parts.hpp asks).
//            'borrow': takes memory that was freed on streams which are still at work.
//            'gather': brings all free memory that a stream may have to that stream, where it joins. It needs 'reclaim',
//            which settles when much memory can be had in no other way; with 'borrow' also 'wait'.
//            'wait', with 'unsettled_bytes': blocks until freed memory may be reused, before a pool refuses; and the bytes
//            that only 'settle' would free.
//            'squeeze': takes a block from what a stream may have at once, at whatever cost to the placement.
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
using has_over = typename R::template over<Placement>;
template <class R>
using has_orders_streams = decltype(R::orders_streams);
template <class R>
using has_waits_before_growing = decltype(R::waits_before_growing);

// Clauses about the rule's 'over<Placement>'.
template <class R>
using has_used = decltype(std::declval<R&>().used());
template <class R, class Stream>
using has_borrow = decltype(std::declval<R&>().borrow(std::size_t{}, std::size_t{}, std::declval<Stream>()));
template <class R, class Stream>
using has_gather = decltype(std::declval<R&>().gather(std::declval<Stream>(), bool{}));
template <class R, class Stream>
using has_rule_squeeze = decltype(std::declval<R&>().squeeze(std::size_t{}, std::size_t{}, std::declval<Stream>()));
template <class R>
using has_reclaim = decltype(std::declval<R&>().reclaim());
template <class R>
using has_wait = decltype(std::declval<R&>().wait());
template <class R>
using has_unsettled_bytes = decltype(std::declval<R&>().unsettled_bytes());
template <class R>
using has_strand = decltype(std::declval<R&>().strand(base::range{}));
template <class R>
using has_lose = decltype(std::declval<R&>().lose(base::range{}));
template <class R, class Stream, class Placement>
using has_visit_usable =
    decltype(std::declval<R&>().visit_usable(std::declval<Stream>(), std::declval<void (*)(Placement&)>()));
template <class R, class Placement>
using has_visit_unused = decltype(std::declval<R&>().visit_unused(std::declval<bool (*)(Placement&)>(), std::size_t{}));
template <class R>
using has_placement = decltype(std::declval<R&>().placement());
template <class R>
using has_counts = decltype(std::declval<R&>().counts());

/// Checks a rule for the reuse slot, before it is bound to a placement.
template <class R, class Placement>
constexpr bool require_rule() {
    static_assert(holds<has_over, R, Placement>, "weir: the reuse slot needs a nested 'template <class Placement> class over'");
    static_assert(returns<bool const, has_thread_safe, R> && returns<bool const, has_orders_streams, R> &&
                      returns<bool const, has_waits_before_growing, R>,
                  "weir: the reuse slot needs 'static constexpr bool' members 'thread_safe', 'orders_streams' and "
                  "'waits_before_growing'");
    if constexpr (holds<has_over, R, Placement>) {
        using over = typename R::template over<Placement>;
        if constexpr (returns<bool const, has_waits_before_growing, R>)
            static_assert(!R::waits_before_growing || returns<base::range, has_borrow, over, on_host_t>,
                          "weir: the reuse slot's rule says 'waits_before_growing', so its 'over' needs 'range "
                          "borrow(std::size_t bytes, std::size_t alignment, stream_ref)'");
        static_assert(holds<has_visit_usable, over, on_host_t, Placement> == holds<has_visit_unused, over, Placement>,
                      "weir: the reuse slot's 'over' needs both or none of 'void visit_usable(stream_ref, Visit const&)' and "
                      "'void visit_unused(Visit const&, std::size_t least_bytes)', which call 'visit(Placement&)'");
    }
    return true;
}

/// Checks `R`, a rule's 'over<Placement>', for the reuse slot.
template <class R, class Stream>
constexpr bool require_reuse() {
    static_assert(returns<base::range, has_take, R, Stream>,
                  "weir: the reuse slot's 'over' needs 'range take(std::size_t bytes, std::size_t alignment, stream_ref)'");
    static_assert(holds<has_give, R, Stream>,
                  "weir: the reuse slot's 'over' needs 'void give(range, stream_ref) noexcept'");
    static_assert(holds<has_add, R, Stream>, "weir: the reuse slot's 'over' needs 'void add(range, stream_ref)'");
    static_assert(holds<has_settle, R>, "weir: the reuse slot's 'over' needs 'void settle()'");
    static_assert(std::is_constructible_v<R, int>,
                  "weir: the reuse slot's 'over' needs a constructor 'over(int device)'");
    static_assert(returns<base::usage, has_used, R>, "weir: the reuse slot's 'over' needs 'usage used()'");
    static_assert(
        holds<has_used_on, R, base::range, Stream> == holds<has_last_used_on, R, base::range, Stream>,
        "weir: the reuse slot's 'over' needs both or none of 'void used_on(range, stream_ref)', which marks a stream for "
        "whose work until the free 'give' waits, and 'void last_used_on(range, stream_ref)', for its work so far");
    static_assert(absent_or<base::range, has_borrow, R, Stream>,
                  "weir: the reuse slot's 'over' has 'borrow', which must be 'range borrow(std::size_t bytes, std::size_t "
                  "alignment, stream_ref)'");
    static_assert(absent_or<base::range, has_rule_squeeze, R, Stream>,
                  "weir: the reuse slot's 'over' has 'squeeze', which must be 'range squeeze(std::size_t bytes, std::size_t "
                  "alignment, stream_ref)'");
    if constexpr (holds<has_gather, R, Stream>)
        static_assert(holds<has_reclaim, R>, "weir: the reuse slot's 'over' has 'gather', so it needs 'void reclaim()'");
    if constexpr (holds<has_gather, R, Stream> && holds<has_borrow, R, Stream>)
        static_assert(returns<bool, has_wait, R>, "weir: the reuse slot's 'over' has 'gather' and 'borrow', so it needs 'bool "
                                                  "wait()', true where something was in flight");
    if constexpr (holds<has_wait, R>) {
        static_assert(returns<bool, has_wait, R>, "weir: the reuse slot's 'over' has 'wait', which must be 'bool wait()', true "
                                                  "where something was in flight");
        static_assert(returns<std::size_t, has_unsettled_bytes, R>,
                      "weir: the reuse slot's 'over' has 'wait', so it needs 'std::size_t unsettled_bytes()', which 'settle' "
                      "would free");
    }
    static_assert(holds<has_strand, R> == holds<has_lose, R>,
                  "weir: the reuse slot's 'over' needs both or none of 'void strand(range) noexcept', for a block of whose "
                  "last use nothing is known, and 'void lose(range) noexcept', for one that a captured graph may use");
    static_assert(holds<has_placement, R> == returns<base::usage&, has_counts, R>,
                  "weir: the reuse slot's 'over' needs both or none of 'Placement& placement()' and 'usage& counts()', with "
                  "which many blocks end at once");
    return true;
}

/// Checks a rule's 'over<Placement>' for a pool that grows in place.
template <class R, class Stream>
constexpr bool require_reuse_in_place() {
    static_assert(holds<has_add, R, Stream, bool>,
                  "weir: the reuse slot's 'over' has 'visit_usable', so over an upstream that grows in place it needs 'void "
                  "add(range, stream_ref, bool joins)'; true where free bytes before the range may join it");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
