// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a pool have so that layers, containers and adaptors can stand on it, and what may it have besides?
//
// If a caller knows no stream, it passes the host in its place ('on_host'). A pool derives from resource::pool_base, where the
// throwing 'allocate' stands, and what a pool may answer better than that base does, such as 'can_hold' and 'device'.
//
// optional:  'mark', 'rewind': name a point in time, and end all blocks that were handed out after it.
//            'in_container': is told that a container holds a block, and on which stream it will free it. May return the mark
//            of the pool's life, which the container asks before the free (resource/pool_life.hpp).
//            'owns': whether an address belongs to the pool.
//            'trim': gives unused memory back to the upstream.
//            'used_on', 'last_used_on': say that another stream uses a block, so that the block's free waits for it.
// cost:      compile time only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/memory_report.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class P, class Stream>
using has_try_allocate = decltype(std::declval<P&>().try_allocate(std::declval<Stream>(), std::size_t{}, std::size_t{}));
template <class P>
using has_default_alignment = when<base::is_power_of_two(P::default_alignment)>;
template <class P>
using has_stream_ordered = decltype(P::stream_ordered);
template <class P> // that is what derives from resource::pool_base, and so all that is in there
using has_base = decltype(std::declval<P const&>().full_report());
template <class P, class Stream>
using has_in_container = decltype(std::declval<P&>().in_container(static_cast<void*>(nullptr), std::declval<Stream>()));
template <class P>
using has_owns = decltype(std::declval<P const&>().owns(nullptr));
template <class P, class... Kept>
using has_trim = decltype(std::declval<P&>().trim(std::declval<Kept>()...));

/// Checks a pool for what layers, containers and adaptors need.
template <class P, class Stream>
constexpr bool require_pool() {
    static_assert(returns<void*, has_try_allocate, P, Stream>,
                  "weir: the pool slot needs 'void* try_allocate(stream_ref, std::size_t bytes, std::size_t alignment)', null "
                  "when there is no room");
    constexpr auto frees = [](auto& p, auto const& stream) // nvcc 13.0 crashes without the '&&'
        -> when<noexcept(p.deallocate(stream, nullptr, std::size_t{}, std::size_t{})) && true> {};
    static_assert(accepts<P, Stream const&>(frees),
                  "weir: the pool slot needs 'void deallocate(stream_ref, void*, std::size_t bytes, std::size_t alignment) "
                  "noexcept'");
    static_assert(holds<has_space, P>, "weir: the pool slot needs 'static constexpr weir::memory_space space'");
    static_assert(holds<has_base, P>,
                  "weir: the pool slot needs a pool that is derived from 'weir::resource::pool_base<my_pool>', which has "
                  "'allocate' and all else that a pool may leave out");
    return true;
}

/// Checks a pool for what layers need besides: a layer reports properties that it reads from its pool.
template <class P, class Stream>
constexpr bool require_layered() {
    static_assert(require_pool<P, Stream>());
    static_assert(holds<has_default_alignment, P>,
                  "weir: the pool slot of a layer needs 'static constexpr std::size_t default_alignment', a power of two");
    static_assert(returns<bool const, has_thread_safe, P> && returns<bool const, has_stream_ordered, P>,
                  "weir: the pool slot of a layer needs 'static constexpr bool' members 'thread_safe' and 'stream_ordered'");
    constexpr auto reports = [](auto const& p) -> when<all_are<memory_report, decltype(p.state())> &&
                                                       all_are<refusal, decltype(p.refused(std::size_t{}, std::size_t{}))>> {};
    static_assert(accepts<P const>(reports),
                  "weir: the pool slot of a layer needs 'weir::memory_report state() const' and 'weir::refusal "
                  "refused(std::size_t bytes, std::size_t alignment) const', which out_of_memory says: 'return {full_state(), "
                  "\"why, and what to do\"};'");
    static_assert(absent_or<bool, has_owns, P>,
                  "weir: the pool slot's pool has 'owns', which must be 'bool owns(void const*) const'");
    static_assert(absent_or<std::size_t, has_trim, P>,
                  "weir: the pool slot's pool has 'trim', which must be 'std::size_t trim(std::size_t keep_bytes = 0)', the "
                  "bytes given back");
    if constexpr (holds<has_mark, P>) {
        constexpr auto ends = [](auto& p) -> std::void_t<decltype(p.rewind(p.mark()))> {};
        static_assert(accepts<P>(ends), "weir: the pool slot's pool has 'mark', so it needs 'void rewind(Mark const&)', which "
                                        "takes what 'mark' returns");
    }
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
