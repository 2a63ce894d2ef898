// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// May the blocks of one pool lie in memory that another pool handed out?
//
// A pool over upstream::from_pool takes its chunks from a pool below, and so does graph_memory; upstream::span may have any
// pool's block. Then both pools own the address of a block, and the upper one is the one that it came from. The types tell who
// may stand on whom: layers are looked through, since their memory is that of the pool that they wrap.
//
// invariant: two pools that are unrelated by type lie in nobody's memory but the upstream's.
// cost:      compile time only.
// not for:   upstreams of your own that cut up a pool's block: nothing in their type says so.

#include <type_traits>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

template <class T>
struct part {
    using type = T;
};

// The upstream of a pool, or of a class that is derived from one; void for others.
template <class Upstream, class Placement, class Reuse, class Growth>
part<Upstream> upstream_part(weir::pool<Upstream, Placement, Reuse, Growth> const*);
part<void> upstream_part(void const*);
template <class Pool>
using upstream_of = typename decltype(upstream_part(static_cast<Pool const*>(nullptr)))::type;

// The pool that a layer wraps, where it wraps one; void for others.
template <class Pool, class = void>
struct wrapped_part : part<void> {};
template <class Pool>
struct wrapped_part<Pool, std::void_t<typename Pool::pool_type>> : part<std::remove_reference_t<typename Pool::pool_type>> {};
template <class Pool>
using wrapped_by = typename wrapped_part<Pool>::type;

/// Whether memory of `A` may be memory of `B`: they are one pool, below their layers.
template <class A, class B>
struct shares_memory {
    static constexpr bool look() {
        if constexpr (!std::is_void_v<wrapped_by<A>>)
            return shares_memory<wrapped_by<A>, B>::value;
        else if constexpr (!std::is_void_v<wrapped_by<B>>)
            return shares_memory<A, wrapped_by<B>>::value;
        else
            return std::is_base_of_v<A, B> || std::is_base_of_v<B, A>;
    }
    static constexpr bool value = look();
};
template <class First, class Second, class B>
struct shares_memory<fallback<First, Second>, B> {
    static constexpr bool value = shares_memory<std::remove_reference_t<First>, B>::value ||
                                  shares_memory<std::remove_reference_t<Second>, B>::value;
};
template <class A, class First, class Second>
struct shares_memory<A, fallback<First, Second>> : shares_memory<fallback<First, Second>, A> {};
template <class First, class Second, class Third, class Fourth>
struct shares_memory<fallback<First, Second>, fallback<Third, Fourth>> {
    static constexpr bool value = shares_memory<std::remove_reference_t<First>, fallback<Third, Fourth>>::value ||
                                  shares_memory<std::remove_reference_t<Second>, fallback<Third, Fourth>>::value;
};

/// Whether blocks of `Upper` may lie in blocks of `Lower`.
template <class Upper, class Lower>
struct lies_within;

// The same for pools by their upstream.
template <class Upstream, class Lower>
struct upstream_lies_within : std::false_type {};
template <memory_space Space, class Lower>
struct upstream_lies_within<upstream::span<Space>, Lower> : std::true_type {};
template <class Pool, class Lower>
struct upstream_lies_within<upstream::from_pool<Pool>, Lower> {
    static constexpr bool value = shares_memory<Pool, Lower>::value || lies_within<Pool, Lower>::value;
};

template <class Upper, class Lower>
struct lies_within {
    static constexpr bool look() {
        if constexpr (!std::is_void_v<wrapped_by<Upper>>)
            return lies_within<wrapped_by<Upper>, Lower>::value;
        else
            return upstream_lies_within<upstream_of<Upper>, Lower>::value;
    }
    static constexpr bool value = look();
};
template <class Pool, class Placement, class Lower>
struct lies_within<graph_memory<Pool, Placement>, Lower> : upstream_lies_within<upstream::from_pool<Pool>, Lower> {};
template <class First, class Second, class Lower>
struct lies_within<fallback<First, Second>, Lower> {
    static constexpr bool value = lies_within<std::remove_reference_t<First>, Lower>::value ||
                                  lies_within<std::remove_reference_t<Second>, Lower>::value;
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
