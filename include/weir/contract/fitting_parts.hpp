// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does each part of a pool stand in its own slot, and does the reuse rule work over the placement?
//
// If not, the compiler says so in one sentence. Parts that do nothing then take the place of all four, so that the pool's code
// compiles and no errors follow that only hide the sentence.
//
// cost:      compile time only.
// not for:   what a single part lacks: that is told by the checks of its slot.

#include <cstddef>
#include <type_traits>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/growth_slot.hpp>
#include <weir/contract/holds.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/contract/upstream_slot.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

struct no_upstream {
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = memory_space::managed; // which every container accepts
    no_upstream() = default;
    template <class Given>
    no_upstream(Given&&) noexcept {}
    void* acquire(std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
};
struct no_placement {
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) { return bytes; }
    static constexpr std::size_t needs(std::size_t bytes, std::size_t, std::size_t) { return bytes; }
    base::range take(std::size_t, std::size_t) { return {}; }
    void give(base::range) noexcept {}
    void add(base::range) {}
    bool remove(base::range) { return false; }
    std::size_t free_bytes() const { return 0; }
};
struct no_rule {
    static constexpr bool thread_safe = true;
    static constexpr bool orders_streams = false;
    static constexpr bool waits_before_growing = false;
    template <class Placement>
    struct over {
        explicit over(int) noexcept {}
        template <class Stream>
        base::range take(std::size_t, std::size_t, Stream const&) { return {}; }
        template <class Stream>
        void give(base::range, Stream const&) noexcept {}
        template <class Stream>
        void add(base::range, Stream const&) {}
        template <class Stream>
        void used_on(base::range, Stream const&) {}
        template <class Stream>
        void last_used_on(base::range, Stream const&) {}
        void settle() {}
        base::usage used() { return {}; }
    };
};
struct no_growth {
    static std::size_t next(std::size_t needed_bytes, std::size_t) { return needed_bytes; }
};

// Each kind of part is known by a member that no other kind has.
template <class Part>
inline constexpr int kinds_of = (holds<has_acquire, Part> ? 1 : 0) | (holds<has_rounded, Part> ? 2 : 0) |
                                (holds<has_orders_streams, Part> ? 4 : 0) | (holds<has_next, Part> ? 8 : 0);
template <class Part>
constexpr bool may_stand_in(int kind) {
    return kinds_of<Part> == 0 || (kinds_of<Part> & kind) != 0;
}

// Holds where the rule says that it does not fit.
template <class Rule, class Placement>
using refuses = when<!Rule::template fits<Placement>>;

/// The parts of a pool: those given, or where they do not fit, ones that do nothing.
template <class Upstream, class Placement, class Reuse, class Growth>
struct fitting_parts {
    static constexpr bool in_order = may_stand_in<Upstream>(1) && may_stand_in<Placement>(2) && may_stand_in<Reuse>(4) &&
                                     may_stand_in<Growth>(8);
    static constexpr bool rule_fits = !in_order || !holds<refuses, Reuse, Placement>;

    template <class Part, class Instead>
    using or_else = std::conditional_t<in_order && rule_fits, Part, Instead>;
    using upstream = or_else<Upstream, no_upstream>;
    using placement = or_else<Placement, no_placement>;
    using reuse = or_else<Reuse, no_rule>;
    using growth = or_else<Growth, no_growth>;
};

/// Checks `Parts`, a fitting_parts: apart from it, because the compiler may drop the class whose check fails.
template <class Parts>
constexpr bool require_fitting_parts() {
    static_assert(Parts::in_order,
                  "weir: a part stands in the slot of another kind of part; the order is 'weir::pool<Upstream, Placement, "
                  "Reuse, Growth>', for example 'weir::pool<weir::upstream::device, weir::placement::best_fit<>, "
                  "weir::reuse::stream_ordered<>>'");
    static_assert(Parts::rule_fits,
                  "weir: this reuse rule does not work over this placement. reuse::stream_ordered needs a placement whose free "
                  "bytes can move between streams ('absorb' and 'lend'), reuse::after_event one whose blocks end one by one. "
                  "Over an arena use 'reuse::immediate'; over a slab each rule works");
    static_assert(require_growth<typename Parts::growth>());
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
