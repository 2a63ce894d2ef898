// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which names does weir have, and what are their defaults?
//
// Every part, layer and container is declared here with all of its default arguments, and nowhere else. A header that defines
// one of them includes this header. Include it alone where a name is enough.
//
// not for:   using a part; include its header, or <weir/weir.hpp> for all of the core.

#if __cplusplus < 201703L
#include "weir: needs C++17 or later; compile with -std=c++17" // no such file: nothing that follows from it is told
#endif
#ifndef __cpp_exceptions
#error "weir: throws where there is no memory; compile with exceptions"
#endif

#include <cstddef>

#define WEIR_VERSION 200 // major * 10000 + minor * 100 + patch

// Whether the recipes wear layer::guard: see recipes.hpp. A program may define it.
#ifndef WEIR_GUARD
#ifdef NDEBUG
#define WEIR_GUARD 0
#else
#define WEIR_GUARD 1
#endif
#endif
#if 0 - WEIR_GUARD - 1 == 1 || (WEIR_GUARD + 0 != 0 && WEIR_GUARD + 0 != 1) // the first: it is empty
#error "weir: WEIR_GUARD is 1 (the recipes catch wrong frees) or 0 (they do not); define it as one of these, or leave it out"
#undef WEIR_GUARD
#define WEIR_GUARD 0 // so that nothing that follows from it is told
#endif

namespace weir {
inline namespace v0 {

enum class memory_space : unsigned char;
class stream_ref;
class text;
class pool_options;
class layer_options;

namespace placement {
class arena;
template <std::size_t BlockBytes>
class slab;
template <std::size_t MinimumBytes = 256>
class bins;
template <std::size_t GranularityBytes = 512>
class best_fit;
template <std::size_t ThresholdBytes, class Small, class Large>
class by_size;
} // namespace placement

namespace upstream {
class device;
struct virtual_memory_tuning;
struct registered_memory;
template <class Tuning = virtual_memory_tuning>
class virtual_memory;
template <unsigned Flags = 0>
class pinned;
class registered_host;
class managed;
class host;
template <memory_space Space>
class span;
template <class Pool>
class from_pool;
template <class Upstream>
class recorded; // defined in <weir/trace.hpp>
} // namespace upstream

namespace identity {
struct checked;
struct promised;
} // namespace identity

namespace handover {
struct grow_first;
struct wait_first;
} // namespace handover

namespace reuse {
struct immediate;
struct after_event;
struct stream_ordered_tuning;
template <class Identity = identity::checked, class Handover = handover::grow_first,
          class Tuning = stream_ordered_tuning>
struct stream_ordered;
template <class Rule>
struct recorded; // defined in <weir/trace.hpp>
} // namespace reuse

namespace growth {
template <std::size_t ChunkBytes>
struct fixed;
struct geometric_tuning;
template <class Tuning = geometric_tuning>
struct geometric;
struct paged_tuning;
template <class Tuning = paged_tuning>
struct paged;
struct by_holes_tuning;
template <class Tuning = by_holes_tuning>
struct by_holes;
struct exact;
} // namespace growth

template <class Upstream, class Placement, class Reuse, class Growth = growth::geometric<>>
class pool;
template <memory_space Space>
class driver_pool_of;
/// CUDA's own pool of device memory, behind the members that every pool has.
using driver_pool = driver_pool_of<memory_space{0}>;
/// CUDA's own pool of pinned memory of the host.
using pinned_driver_pool = driver_pool_of<memory_space{1}>;
/// CUDA's own pool of managed memory. Since CUDA 13.
using managed_driver_pool = driver_pool_of<memory_space{2}>;
namespace driver {
template <class Upstream = upstream::device>
class unpooled;
} // namespace driver
template <class Pool, class Placement = placement::best_fit<>>
class graph_memory; // defined in <weir/graph/graph_memory.hpp>
template <class Pool>
class scope;

namespace trace { // defined in <weir/trace.hpp>
class recorder;
struct no_stacks;
class watch_board;
} // namespace trace

// The recipes: see recipes.hpp. As instances of a template they are compiled only where one is used.
namespace recipes {
template <class Recipe, bool Guarded>
class pool_of;
struct device;
struct promised_device;
struct compact_device;
template <class Stacks>
struct recorded_device;
struct pinned;
struct managed;
struct host;
struct frames;
struct nodes;
} // namespace recipes
/// The pool to begin with: device memory of any sizes, for any number of streams and threads (recipes::device).
using device_pool = recipes::pool_of<recipes::device, WEIR_GUARD>;
/// As device_pool with the least host time, for programs that keep its promises about streams (recipes::promised_device).
using promised_device_pool = recipes::pool_of<recipes::promised_device, WEIR_GUARD>;
/// As device_pool with the smallest footprint (recipes::compact_device).
using compact_device_pool = recipes::pool_of<recipes::compact_device, WEIR_GUARD>;
/// As device_pool, and writes down what it does, with whole stacks if `Stacks` is trace::call_stacks<>. Defined in
/// <weir/trace.hpp>.
template <class Stacks>
using recorded_device_pool_with = recipes::pool_of<recipes::recorded_device<Stacks>, WEIR_GUARD>;
/// The same without stacks.
using recorded_device_pool = recorded_device_pool_with<trace::no_stacks>;
/// Page-locked memory of the host, for copies from and to the device (recipes::pinned).
using pinned_pool = recipes::pool_of<recipes::pinned, WEIR_GUARD>;
/// Memory that migrates between host and devices page by page (recipes::managed).
using managed_pool = recipes::pool_of<recipes::managed, WEIR_GUARD>;
/// Ordinary memory of the host, for one thread (recipes::host).
using host_pool = recipes::pool_of<recipes::host, WEIR_GUARD>;
/// Device memory that ends all at once, frame by frame, in one thread (recipes::frames).
using frame_pool = recipes::pool_of<recipes::frames, WEIR_GUARD>;
/// Device memory in blocks of one small size, for one thread (recipes::nodes).
using node_pool = recipes::pool_of<recipes::nodes, WEIR_GUARD>;

namespace layer {
template <class Pool>
class statistics;
template <class Pool>
class limit;
template <class First, class Second>
class fallback;
template <class Pool>
class guard;
template <class Pool>
class sized;
template <class Pool>
class synchronized;
template <class Pool, class Stacks = trace::no_stacks>
class record; // defined in <weir/trace.hpp>
template <class Pool>
class watch; // the same
template <class Pool>
class poison;
template <class Pool, class Handler>
class failure_handler;
} // namespace layer

struct failed_allocation;
namespace handler {
template <class Pool>
class trim_of;
} // namespace handler

namespace staging { // defined in <weir/staging.hpp>
class copy_threads;
class pending_copy;
class pinned_ring;
class pinned_ring_options;
struct piece;
namespace detail {
struct untold;
} // namespace detail
template <class Progress = detail::untold>
class streaming_options;
struct least_recently_used;
struct by_cost_and_size;
struct by_next_use;
template <class Victims = least_recently_used>
class spill_set;
template <class T>
class spillable;
} // namespace staging

namespace multi_device { // defined in <weir/multi_device.hpp>
template <class Pool, class Options = pool_options>
class per_device;
class device_streams;
template <class T>
class replicated;
template <class T>
class sharded_vector;
class rank_channel;
class thread_ranks;
class thread_channel;
class process_channel;
class socket_channel;
class chunk_registration;
template <class Upstream = upstream::virtual_memory<upstream::registered_memory>,
          class Placement = placement::by_size<65536, placement::bins<>, placement::best_fit<>>>
class collective_pool;
} // namespace multi_device

template <memory_space Required>
class pool_ref;
/// Any pool whose memory kernels reach, for functions that take one.
using device_pool_ref = pool_ref<memory_space{0}>;
/// Any pool of page-locked memory.
using pinned_pool_ref = pool_ref<memory_space{1}>;
/// Any pool whose memory the host reaches.
using host_pool_ref = pool_ref<memory_space{3}>;
template <memory_space Required>
class any_pool;
/// Owns a pool whose memory kernels reach, whatever its type.
using any_device_pool = any_pool<memory_space{0}>;
/// Owns a pool of page-locked memory, whatever its type.
using any_pinned_pool = any_pool<memory_space{1}>;
/// Owns a pool whose memory the host reaches, whatever its type.
using any_host_pool = any_pool<memory_space{3}>;
class device_buffer;
class pinned_buffer;
template <class T>
class device_vector;
template <class T>
class pinned_vector;
template <class T>
class device_value;
template <class T>
class pinned_value;
namespace converting {
template <class Element, class Storage>
class reference;
} // namespace converting
template <class Element, class Storage>
class converting_view;
template <class Element, class Storage>
class stored_vector; // defined, as the two above, in <weir/staging.hpp>

namespace stable { // defined in <weir/stable.hpp>
class page_pool;
class page_pool_options;
template <class T>
class append_end;
template <class T>
class append_view;
class sleep_group;
} // namespace stable
class stable_buffer;
template <class T>
class stable_vector; // defined, as the one above, in <weir/stable.hpp>

} // namespace v0
} // namespace weir
