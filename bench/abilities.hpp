// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a pool be asked in a bench, and how are lists of pools written?
//
// An adapter sums up its abilities; a question names those that it needs, and skips the pools without them.
//
// not for:   adapters themselves: see pools.hpp.

namespace weir_bench {

/// Many threads may call at once.
inline constexpr unsigned many_threads = 1;
/// A block may be freed on another stream than it was allocated on, while work is in flight.
inline constexpr unsigned any_stream = 2;
/// Tens of thousands of blocks and a few GiB are no trouble.
inline constexpr unsigned bulk = 4;
/// So are a million blocks: most allocations make no driver call.
inline constexpr unsigned millions = 8;
/// The memory is device memory.
inline constexpr unsigned on_device = 16;
/// A block may be freed while work on its stream is in flight.
inline constexpr unsigned in_flight = 32;
/// Streams may be destroyed while the pool lives, and their handles come again.
inline constexpr unsigned come_and_go = 64;
/// Dozens of pools fit beside one another.
inline constexpr unsigned side_by_side = 128;
/// It gives its memory up and gets it back at the same addresses. No pool but weir's is asked.
inline constexpr unsigned suspends = 256;
/// It tells the threads' own default streams apart, which all have the handle cudaStreamPerThread.
inline constexpr unsigned per_thread_streams = 512;
/// What a pool for any program is able to do.
inline constexpr unsigned everything =
    many_threads | any_stream | bulk | millions | on_device | in_flight | come_and_go | side_by_side | per_thread_streams;

/// A pool's type as a value.
template <class Pool>
struct type_of {
    using type = Pool;
};

/// A list of adapters.
template <class... Pools>
struct pool_list {};

namespace detail {
template <class... Lists>
struct join;
template <class... A>
struct join<pool_list<A...>> {
    using type = pool_list<A...>;
};
template <class... A, class... B, class... Rest>
struct join<pool_list<A...>, pool_list<B...>, Rest...> : join<pool_list<A..., B...>, Rest...> {};
} // namespace detail

/// The lists as one.
template <class... Lists>
using joined = typename detail::join<Lists...>::type;

template <class... Pools, class Action>
void for_each(pool_list<Pools...>, Action const& action) {
    (action(type_of<Pools>{}), ...);
}

} // namespace weir_bench
