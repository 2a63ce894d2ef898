// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a pool have so that layers, containers and adaptors can stand on it, and what may it have besides?
//
// If a caller knows no stream, it passes the host in its place ('on_host').
//
// optional:  'device': the number of the device that the memory is on.
//            'mark', 'rewind': name a point in time, and end all blocks that were handed out after it.
//            'on_violation', 'on_leak': what the options say.
//            'before_destroy': names the blocks that need a stream which is about to end (layer::guard).
//            'in_container': is told that a container holds a block, and on which stream it will free it. May return the mark
//            of the pool's life, which the container asks before the free (resource/pool_life.hpp).
//            'rounded': how many bytes of the pool a block takes.
//            'try_allocate_at': as 'try_allocate', and is told which line of the program asks (layer::record).
//            'owns': whether an address belongs to the pool.
//            'trim': gives unused memory back to the upstream.
//            'used_on', 'last_used_on': say that another stream uses a block, so that the block's free waits for it.
// cost:      compile time only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class P, class Stream>
using has_try_allocate = decltype(std::declval<P&>().try_allocate(std::declval<Stream>(), std::size_t{}, std::size_t{}));
template <class P, class Stream>
using has_allocate = decltype(std::declval<P&>().allocate(std::declval<Stream>(), std::size_t{}, std::size_t{}));
template <class P, class Stream>
using has_deallocate = when<noexcept(std::declval<P&>().deallocate(std::declval<Stream>(), static_cast<void*>(nullptr),
                                                                   std::size_t{}, std::size_t{}))>;
template <class P>
using has_default_alignment = when<base::is_power_of_two(P::default_alignment)>;
template <class P>
using has_stream_ordered = decltype(P::stream_ordered);
template <class P>
using has_streams_may_end = decltype(P::streams_may_end);
template <class P>
using has_state = decltype(std::declval<P const&>().state());
template <class P>
using has_refusal = decltype(text(std::declval<P const&>().refusal(std::size_t{}, std::size_t{})));
template <class P>
using has_can_hold = decltype(std::declval<P const&>().can_hold(std::size_t{}, std::size_t{}));
template <class P>
using has_examine = decltype(std::declval<P const&>().examine(std::declval<memory_report&>()));
template <class P>
using has_examine_own = decltype(std::declval<P const&>().examine_own(std::declval<memory_report&>()));
template <class P>
using has_offer_to = decltype(std::declval<P const&>().offer_to(std::declval<largest_blocks&>()));
template <class P>
using has_refused_state = decltype(memory_report(std::declval<P const&>().refused_state(std::size_t{}, std::size_t{})));
template <class P>
using has_device = decltype(std::declval<P const&>().device());
template <class P>
using has_on_violation = decltype(std::declval<P const&>().on_violation());
template <class P>
using has_on_leak = decltype(std::declval<P const&>().on_leak());
template <class P, class Stream>
using has_before_destroy = decltype(std::declval<P&>().before_destroy(std::declval<Stream>()));
template <class P, class Stream>
using has_in_container = decltype(std::declval<P&>().in_container(static_cast<void*>(nullptr), std::declval<Stream>()));
template <class P>
using has_owns = decltype(std::declval<P const&>().owns(nullptr));
template <class P, class... Kept>
using has_trim = decltype(std::declval<P&>().trim(std::declval<Kept>()...));
template <class P>
using has_reset_peaks = decltype(std::declval<P&>().reset_peaks());
template <class P>
using rounds = decltype(P::rounded(std::size_t{}, std::size_t{}));
template <class P, class Stream>
using allocates_at =
    decltype(std::declval<P&>().try_allocate_at(call_site{}, std::declval<Stream>(), std::size_t{}, std::size_t{}));
template <class P>
using has_suspended_bytes = decltype(std::declval<P const&>().suspended_bytes());

/// Whether a stream on which memory was freed may end at any time: a 'static constexpr bool streams_may_end' of a pool or of a
/// reuse rule. False where there is none: then 'settle' comes before the stream's end.
template <class P>
constexpr bool streams_may_end() noexcept {
    if constexpr (holds<has_streams_may_end, P>)
        return P::streams_may_end;
    else
        return false;
}

/// Checks a pool for what layers, containers and adaptors need.
template <class P, class Stream>
constexpr bool require_pool() {
    static_assert(returns<void*, has_try_allocate, P, Stream>,
                  "weir: the pool slot needs 'void* try_allocate(stream_ref, std::size_t bytes, std::size_t alignment)', null "
                  "when there is no room");
    static_assert(holds<has_deallocate, P, Stream>,
                  "weir: the pool slot needs 'void deallocate(stream_ref, void*, std::size_t bytes, std::size_t alignment) "
                  "noexcept'");
    static_assert(holds<has_space, P>, "weir: the pool slot needs 'static constexpr weir::memory_space space'");
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
    static_assert(returns<memory_report, has_state, P> && holds<has_refusal, P>,
                  "weir: the pool slot of a layer needs 'weir::memory_report state() const' and 'weir::text "
                  "refusal(std::size_t bytes, std::size_t alignment) const', which out_of_memory says");
    static_assert(absent_or<bool, has_can_hold, P>,
                  "weir: the pool slot's pool has 'can_hold', which must be 'bool can_hold(std::size_t bytes, std::size_t "
                  "alignment) const'");
    static_assert(absent_or<int, has_device, P>,
                  "weir: the pool slot's pool has 'device', which must be 'int device() const', a device's number");
    static_assert(absent_or<bool, has_owns, P>,
                  "weir: the pool slot's pool has 'owns', which must be 'bool owns(void const*) const'");
    static_assert(absent_or<std::size_t, has_trim, P>,
                  "weir: the pool slot's pool has 'trim', which must be 'std::size_t trim(std::size_t keep_bytes = 0)', the "
                  "bytes given back");
    static_assert(!holds<has_mark, P> || holds<has_rewind, P>,
                  "weir: the pool slot's pool has 'mark', so it needs 'void rewind(Mark const&)', which takes what 'mark' "
                  "returns");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
