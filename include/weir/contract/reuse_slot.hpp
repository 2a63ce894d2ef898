// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a reuse rule have to fit its slot, and what may it have besides?
//
// A reuse rule decides when a freed block may be handed out again, and to which stream. A rule is a class with a nested
// template 'over<Placement>', which does the work; it is made for a device. Most clauses here are about 'over'.
//
// optional:  'fits<Placement>': whether the rule works over such a placement (fitting_parts.hpp asks).
//            'squeeze': takes a block from what a stream may have at once, at whatever cost to the placement.
//            Crossing, by 'borrow', which takes memory that was freed on streams which are still at work: 'gather' brings all
//            free memory that a stream may have to that stream, where it joins; 'expect_at_most' is told the pool's limit.
//            Waiting, by 'wait', which blocks until freed memory may be reused, before a pool refuses: 'reclaim' settles when
//            much memory can be had in no other way; 'unsettled_bytes' are those that only 'settle' would free; 'strand' takes
//            a block back whose last use nobody knows, which only 'settle' frees; 'lose' one that a captured graph may use.
//            'visit_usable', 'visit_unused': show a pool that grows in place the placements whose free memory a stream may
//            have, and those whose free memory no work uses.
//            'used_on', 'last_used_on': say that another stream uses a block, so that its free waits for that stream.
//            'take' with a fourth argument, which it calls with a block that another stream had freed ('borrow' too).
//            A constructor 'over(int device, Upstream const&)', for a rule that records.
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

template <class R>
using has_orders_streams = decltype(R::orders_streams);
template <class R>
using has_streams_may_end = decltype(R::streams_may_end);

// Clauses about the rule's 'over<Placement>'.
template <class R, class Stream>
using has_borrow = decltype(std::declval<R&>().borrow(std::size_t{}, std::size_t{}, std::declval<Stream>()));
template <class R, class Stream>
using has_rule_squeeze = decltype(std::declval<R&>().squeeze(std::size_t{}, std::size_t{}, std::declval<Stream>()));
template <class R>
using has_wait = decltype(std::declval<R&>().wait());
template <class R, class Stream, class Placement>
using has_visit_usable =
    decltype(std::declval<R&>().visit_usable(std::declval<Stream>(), std::declval<void (*)(Placement&)>()));
template <class R>
using has_placement = decltype(std::declval<R&>().placement());

/// Whether a stream on which memory was freed may end at any time: a rule's 'static constexpr bool streams_may_end'. False
/// where there is none: then 'settle' comes before the stream's end.
template <class R>
constexpr bool streams_may_end() noexcept {
    if constexpr (holds<has_streams_may_end, R>)
        return R::streams_may_end;
    else
        return false;
}

/// Checks a rule for the reuse slot, before it is bound to a placement.
template <class R, class Placement>
constexpr bool require_rule() {
    constexpr auto binds = [](auto const& r, auto const& placement) -> std::void_t<
                               typename std::decay_t<decltype(r)>::template over<std::decay_t<decltype(placement)>>> {};
    static_assert(accepts<R, Placement const&>(binds),
                  "weir: the reuse slot needs a nested 'template <class Placement> class over'");
    constexpr auto promises = [](auto const& r) -> when<all_are<bool const, decltype(std::decay_t<decltype(r)>::thread_safe),
                                                               decltype(std::decay_t<decltype(r)>::orders_streams),
                                                               decltype(std::decay_t<decltype(r)>::waits_before_growing)>> {};
    static_assert(accepts<R>(promises),
                  "weir: the reuse slot needs 'static constexpr bool' members 'thread_safe', 'orders_streams' and "
                  "'waits_before_growing'");
    if constexpr (accepts<R, Placement const&>(binds)) {
        using over = typename R::template over<Placement>;
        if constexpr (accepts<R>(promises))
            static_assert(!R::waits_before_growing || returns<base::range, has_borrow, over, on_host_t>,
                          "weir: the reuse slot's rule says 'waits_before_growing', so its 'over' needs 'range "
                          "borrow(std::size_t bytes, std::size_t alignment, stream_ref)'");
        constexpr auto unused = [](auto& o)
            -> std::void_t<decltype(o.visit_unused(std::declval<bool (*)(Placement&)>(), std::size_t{}))> {};
        static_assert(holds<has_visit_usable, over, on_host_t, Placement> == accepts<over>(unused),
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
    constexpr auto uses = [](auto& r) -> when<all_are<base::usage, decltype(r.used())>> {};
    static_assert(accepts<R>(uses), "weir: the reuse slot's 'over' needs 'usage used()'");
    constexpr auto so_far = [](auto& r, auto const& stream) -> std::void_t<decltype(r.last_used_on(base::range{}, stream))> {};
    static_assert(
        holds<has_used_on, R, base::range, Stream> == accepts<R, Stream>(so_far),
        "weir: the reuse slot's 'over' needs both or none of 'void used_on(range, stream_ref)', which marks a stream for "
        "whose work until the free 'give' waits, and 'void last_used_on(range, stream_ref)', for its work so far");
    static_assert(absent_or<base::range, has_rule_squeeze, R, Stream>,
                  "weir: the reuse slot's 'over' has 'squeeze', which must be 'range squeeze(std::size_t bytes, std::size_t "
                  "alignment, stream_ref)'");
    if constexpr (holds<has_borrow, R, Stream>) {
        constexpr auto crosses = [](auto& r, auto const& stream)
            -> std::void_t<decltype(r.gather(stream, bool{})), decltype(r.expect_at_most(std::size_t{}))> {};
        static_assert(returns<base::range, has_borrow, R, Stream> && accepts<R, Stream>(crosses) && holds<has_wait, R>,
                      "weir: the reuse slot's 'over' has 'borrow', which must be 'range borrow(std::size_t bytes, std::size_t "
                      "alignment, stream_ref)', so it needs 'void gather(stream_ref, bool may_wait)', 'void "
                      "expect_at_most(std::size_t limit_bytes)' and 'bool wait()'");
    }
    if constexpr (holds<has_wait, R>) {
        constexpr auto waits = [](auto& r) -> when<noexcept(r.strand(base::range{})) && noexcept(r.lose(base::range{})) &&
                                                       all_are<bool, decltype(r.wait())> &&
                                                       all_are<std::size_t, decltype(r.unsettled_bytes())>,
                                                   std::void_t<decltype(r.reclaim())>> {};
        static_assert(accepts<R>(waits),
                      "weir: the reuse slot's 'over' has 'wait', which must be 'bool wait()', true where something was in "
                      "flight, so it needs 'void reclaim()', 'std::size_t unsettled_bytes()', which 'settle' would free, 'void "
                      "strand(range) noexcept', for a block of whose last use nothing is known, and 'void lose(range) "
                      "noexcept', for one that a captured graph may use");
    }
    constexpr auto counts = [](auto& r) -> when<all_are<base::usage&, decltype(r.counts())>> {};
    static_assert(holds<has_placement, R> == accepts<R>(counts),
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
