// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where does an allocation go when the pool has no room?
//
// It goes to a second pool. The first pool is asked first, and if it refuses, the second is asked. A free goes back to the
// pool that owns the address, so the first pool must be able to tell whether it owns one. Fallbacks can be nested for more
// than two pools. A second pool that takes its chunks from the first (upstream::from_pool) is asked first whether it owns a
// block: the first pool owns the chunk in which that block lies.
//
// invariant: a block goes back where it came from.
// order:     that of the two pools.
// cost:      each free looks up the owner; an allocation that the first pool grants costs nothing extra.
// not for:   two kinds of memory that the user has to tell apart, because the layer states only the narrower kind; two layers
//            over one pool, because both own what it handed out. An upstream of your own that cuts up a block of the first
//            pool: only from_pool, span and graph_memory are known to do that (fallback/lies_within.hpp).

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/layer/fallback/lies_within.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if both pools allow it. `First` and `Second`: pools, or references to pools.
template <class First, class Second>
class fallback : public resource::pool_base<fallback<First, Second>> {
    using first_pool = std::remove_reference_t<First>;
    using second_pool = std::remove_reference_t<Second>;
    static_assert(contract::require_layered<first_pool, stream_ref>());
    static_assert(contract::require_layered<second_pool, stream_ref>());
    static_assert(contract::holds<contract::has_owns, first_pool>,
                  "weir: layer::fallback needs a first pool with 'bool owns(void const*) const', to know where a "
                  "block goes back to");
    // Whether the second pool's blocks may lie in blocks of the first, which then owns them, too.
    static constexpr bool second_lies_in_first = layer::detail::lies_within<second_pool, first_pool>::value &&
                                                 !layer::detail::lies_within<first_pool, second_pool>::value;
    static_assert(!second_lies_in_first || contract::holds<contract::has_owns, second_pool>,
                  "weir: layer::fallback over a pool that takes its memory from the first one needs a second pool with 'bool "
                  "owns(void const*) const', too, to know where a block goes back to");

public:
    /// Where memory of either pool can be used: their common space, or else the space that fewer may touch.
    static constexpr memory_space space =
        base::device_accessible(first_pool::space) && base::device_accessible(second_pool::space)
            ? (base::host_accessible(first_pool::space) ? second_pool::space : first_pool::space)
            : memory_space::host;
    static_assert((base::device_accessible(first_pool::space) && base::device_accessible(second_pool::space)) ||
                      (base::host_accessible(first_pool::space) && base::host_accessible(second_pool::space)),
                  "weir: layer::fallback needs two pools whose memory can be used in one place: both from devices "
                  "or both from the host");
    static constexpr bool thread_safe = first_pool::thread_safe && second_pool::thread_safe;
    static constexpr bool stream_ordered = first_pool::stream_ordered && second_pool::stream_ordered;
    static constexpr bool streams_may_end = first_pool::streams_may_end && second_pool::streams_may_end;
    static constexpr std::size_t default_alignment =
        first_pool::default_alignment > second_pool::default_alignment ? first_pool::default_alignment
                                                                       : second_pool::default_alignment;

    /// Each argument constructs one pool, or is the pool if that type is a reference. If both pools have a device, it must be
    /// the same one. Otherwise one of them refuses a stream as another device's, and the call fails if the first pool has no
    /// room.
    template <class A, class B,
              class = std::enable_if_t<std::is_constructible_v<First, A> && std::is_constructible_v<Second, B>>>
    fallback(A&& first, B&& second) : first_(std::forward<A>(first)), second_(std::forward<B>(second)) {}
    template <class A = First, class B = Second,
              class = std::enable_if_t<std::is_default_constructible_v<A> && std::is_default_constructible_v<B>>>
    fallback() : first_(), second_() {}
    fallback(fallback const&) = delete;
    fallback& operator=(fallback const&) = delete;

    /// A block from the first of the two pools that has room, or null.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = default_alignment) {
        if (void* const block = first_.try_allocate(stream, bytes, alignment))
            return block;
        return second_.try_allocate(stream, bytes, alignment);
    }

    /// Returns the block to the pool that it came from. If a pool's 'owns' throws twice, nobody knows which that is, and the
    /// block stays handed out.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = default_alignment) noexcept {
        bool is_first = false;
        if (!base::try_twice([&] { return is_first = is_of_first(p), true; }))
            return;
        if (is_first)
            first_.deallocate(stream, p, bytes, alignment);
        else
            second_.deallocate(stream, p, bytes, alignment);
    }
    using resource::pool_base<fallback>::deallocate;

    /// Forwarded to the pool that owns the block. Exists if both pools have it. Throws as that pool does.
    template <class A = first_pool, class B = second_pool,
              class = std::enable_if_t<contract::holds<contract::has_used_on, A, void*, stream_ref> &&
                                       contract::holds<contract::has_used_on, B, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        if (is_of_first(p))
            first_.used_on(p, stream);
        else
            second_.used_on(p, stream);
    }
    template <class A = first_pool, class B = second_pool,
              class = std::enable_if_t<contract::holds<contract::has_used_on, A, void*, stream_ref> &&
                                       contract::holds<contract::has_used_on, B, void*, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        if (is_of_first(p))
            first_.last_used_on(p, stream);
        else
            second_.last_used_on(p, stream);
    }

    /// For containers, as layer::guard's. Forwarded to the pool that owns the block.
    resource::detail::shared_pool_life in_container(void* p, stream_ref stream) noexcept {
        resource::detail::shared_pool_life life;
        base::try_twice([&] {
            life = is_of_first(p) ? resource::detail::in_container(first_, p, stream)
                                  : resource::detail::in_container(second_, p, stream);
            return true;
        });
        return life;
    }
    /// How many blocks of both need `stream`; see layer::guard. Throws as the pools' own.
    std::size_t before_destroy(stream_ref stream) {
        return first_.before_destroy(stream) + second_.before_destroy(stream);
    }

    /// What the options of the pools say, for a layer::guard around this: the stricter of the two, where an end of the program
    /// is stricter than a report, and that than nothing. See pool_options.
    violation_action on_violation() const {
        violation_action const first = first_.on_violation();
        return first == violation_action::abort ? first : second_.on_violation();
    }
    leak_action on_leak() const {
        leak_action const first = first_.on_leak(), second = second_.on_leak();
        if (first == second)
            return first;
        return first == leak_action::abort || second == leak_action::abort ? leak_action::abort : leak_action::report;
    }
    /// Sets who gets the sentences about mistakes, in both pools. Exists if both have it, as layer::guard has.
    template <class A = first_pool, class B = second_pool>
    auto on_violation(void (*handler)(char const*))
        -> decltype(std::declval<A&>().on_violation(handler), std::declval<B&>().on_violation(handler)) {
        first_.on_violation(handler);
        second_.on_violation(handler);
    }

    /// Whether either pool owns `p`. Exists if the second pool can tell, too.
    template <class B = second_pool, class = std::enable_if_t<contract::holds<contract::has_owns, B>>>
    bool owns(void const* p) const {
        return first_.owns(p) || second_.owns(p);
    }

    /// Blocks until what was freed in either pool may be reused. Exists if both pools have it. Throws as they do.
    template <class A = first_pool, class B = second_pool>
    auto settle() -> decltype(std::declval<A&>().settle(), std::declval<B&>().settle()) {
        first_.settle();
        second_.settle();
    }

    /// Trims the second pool and then the first, until both together hold at most `keep_bytes` or cannot give more back.
    /// Returns the bytes given back. Exists if both pools have it. Throws as they do.
    template <class A = first_pool, class B = second_pool>
    auto trim(std::size_t keep_bytes = 0) -> decltype(std::declval<A&>().trim(), std::declval<B&>().trim()) {
        std::size_t const first_bytes = first_.state().reserved_bytes;
        std::size_t const given_back = second_.trim(keep_bytes > first_bytes ? keep_bytes - first_bytes : 0);
        std::size_t const second_bytes = second_.state().reserved_bytes;
        return given_back + first_.trim(keep_bytes > second_bytes ? keep_bytes - second_bytes : 0);
    }

    first_pool& first() noexcept { return first_; }
    first_pool const& first() const noexcept { return first_; }
    second_pool& second() noexcept { return second_; }
    second_pool const& second() const noexcept { return second_; }

    /// The sums of both pools' figures, the larger of their largest free ranges, and both names.
    memory_report state() const { return sum(first_.state(), second_.state()); }
    /// The sum of what both tell of their refusals, and both reasons. Throws as their 'refused'.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        refusal const first = first_.refused(bytes, alignment), second = second_.refused(bytes, alignment);
        return {sum(first.state, second.state), "first: " + first.reason + "; then: " + second.reason};
    }
    /// Adds what either pool can tell; the free bytes of the device are the first pool's. See 'full_state'.
    void examine(memory_report& now) const {
        second_.examine(now);
        first_.examine(now);
    }
    void list_own(largest_blocks& list) const noexcept {
        if constexpr (!std::is_reference_v<First>)
            first_.list_own(list);
        if constexpr (!std::is_reference_v<Second>)
            second_.list_own(list);
    }
    text report() const { return resource::report_text(state(), "two pools"); }
    /// Whether either pool could have room for such a block if no other block were handed out. Throws as their 'state'.
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const {
        return first_.can_hold(bytes, alignment) || second_.can_hold(bytes, alignment);
    }
    /// The first pool's device.
    int device() const { return first_.device(); }

private:
    bool is_of_first(void const* p) const {
        if constexpr (second_lies_in_first)
            return !second_.owns(p);
        else
            return first_.owns(p);
    }

    static memory_report sum(memory_report const& a, memory_report const& b) {
        memory_report both{a.name + ", then " + b.name,
                           sum_known(a.in_use_bytes, b.in_use_bytes),
                           sum_known(a.reserved_bytes, b.reserved_bytes),
                           sum_known(a.limit_bytes, b.limit_bytes),
                           larger_known(a.largest_free_bytes, b.largest_free_bytes),
                           a.live_blocks + b.live_blocks,
                           a.chunks + b.chunks,
                           a.lost_bytes + b.lost_bytes,
                           a.unsettled_bytes + b.unsettled_bytes,
                           a.waits + b.waits,
                           a.device_free_bytes != memory_report::unknown ? a.device_free_bytes : b.device_free_bytes,
                           a.largest_live,
                           sum_known(a.requested_bytes, b.requested_bytes)};
        for (live_block const& each : b.largest_live)
            both.largest_live.offer(each);
        return both;
    }

    static constexpr std::size_t sum_known(std::size_t a, std::size_t b) noexcept {
        return a == SIZE_MAX || b == SIZE_MAX || base::add_overflows(a, b) ? SIZE_MAX : a + b;
    }
    static constexpr std::size_t larger_known(std::size_t a, std::size_t b) noexcept {
        return b == SIZE_MAX || (a != SIZE_MAX && a > b) ? a : b;
    }

    First first_;
    Second second_;
};

/// Stands on two pools that live elsewhere, by reference: fallback both(first, second).
template <class First, class Second>
fallback(First&, Second&) -> fallback<First&, Second&>;

} // namespace layer
} // namespace v0
} // namespace weir
