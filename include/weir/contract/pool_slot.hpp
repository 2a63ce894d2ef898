// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a pool have so that layers, containers and adaptors can stand on it, and what may it have besides?
//
// If a caller knows no stream, it passes the host in its place ('on_host').
//
// optional:  'device': the number of the device that the memory is on.
//            'mark', 'rewind': name a point in time, and end all blocks that were handed out after it.
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
using tries = when<std::is_same_v<
    decltype(std::declval<P&>().try_allocate(std::declval<Stream>(), std::size_t{}, std::size_t{})), void*>>;
template <class P, class Stream>
using frees = when<noexcept(std::declval<P&>().deallocate(std::declval<Stream>(), static_cast<void*>(nullptr),
                                                          std::size_t{}, std::size_t{}))>;
template <class P>
using says_default_alignment = when<base::is_power_of_two(P::default_alignment)>;
template <class P>
using says_what_its_users_may =
    when<is_constant_bool<decltype(P::thread_safe)> && is_constant_bool<decltype(P::stream_ordered)>>;
template <class P>
using tells = when<std::is_same_v<decltype(std::declval<P const&>().state()), memory_report> &&
                   std::is_convertible_v<decltype(std::declval<P const&>().refusal(std::size_t{}, std::size_t{})), text>>;
template <class P>
using says_device = when<std::is_same_v<decltype(std::declval<P const&>().device()), int>>;
template <class P>
using says_on_violation = decltype(std::declval<P const&>().on_violation());
template <class P>
using marks_pool = decltype(std::declval<P&>().rewind(std::declval<P&>().mark()));
template <class P>
using knows_owner = when<std::is_same_v<decltype(std::declval<P const&>().owns(nullptr)), bool>>;
template <class P>
using trims = size_type_of<decltype(std::declval<P&>().trim())>;
template <class P>
using trims_to = when<std::is_convertible_v<decltype(std::declval<P&>().trim(std::size_t{})), std::size_t> &&
                      std::is_convertible_v<decltype(std::declval<P const&>().reserved_bytes()), std::size_t>>;
template <class Pool>
inline constexpr bool has_owns = holds<knows_owner, Pool>;
template <class Pool, class Stream>
inline constexpr bool has_used_on = holds<marks_users, Pool, void*, Stream> && holds<notes_last_uses, Pool, void*, Stream>;

/// Checks a pool for what layers, containers and adaptors need.
template <class P, class Stream>
constexpr bool require_pool() {
    static_assert(holds<tries, P, Stream>, "weir: the pool slot needs 'void* try_allocate(stream_ref, std::size_t "
                                           "bytes, std::size_t alignment)', null when there is no room");
    static_assert(holds<frees, P, Stream>, "weir: the pool slot needs 'void deallocate(stream_ref, void*, std::size_t "
                                           "bytes, std::size_t alignment) noexcept'");
    static_assert(holds<says_space, P>, "weir: the pool slot needs 'static constexpr weir::memory_space space'");
    return true;
}

/// Checks a pool for what layers need besides: a layer reports properties that it reads from its pool.
template <class P, class Stream>
constexpr bool require_layered() {
    static_assert(require_pool<P, Stream>());
    static_assert(holds<says_default_alignment, P>,
                  "weir: the pool slot of a layer needs 'static constexpr std::size_t default_alignment', a power of two");
    static_assert(holds<says_what_its_users_may, P>,
                  "weir: the pool slot of a layer needs 'static constexpr bool' members 'thread_safe' and 'stream_ordered'");
    static_assert(holds<tells, P>,
                  "weir: the pool slot of a layer needs 'weir::memory_report state() const' and 'weir::text "
                  "refusal(std::size_t bytes, std::size_t alignment) const', which out_of_memory says");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
