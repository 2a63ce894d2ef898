// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which combinations are good, and what are they called?
//
// These are ready-made pools that suit most programs; write your own beside them. Each is a class over its parts, with their
// constructors and members and none of its own, so that fwd.hpp can declare it ahead and its name stays short. It is made by a
// template, 'recipe::pool_of', because the compiler then does the work of the class only where a program uses that recipe. If
// WEIR_GUARD is 1, all but the driver's pools wear layer::guard, which catches wrong frees with a sentence. It is 1 in debug
// builds (no NDEBUG) and 0 in others, unless you say which: -DWEIR_GUARD=0 or =1.
//
// invariant: the files of one program, or of one shared library, agree in WEIR_GUARD, or the linker refuses them: a pool that
//            they share would be of two types.
// cost:      as its parts document.
// not for:   new code: a recipe that needs code is a part that is missing.

#include <cstddef>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/fwd.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/layer/guard.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>
#include <weir/upstream/registered_host.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace weir {
inline namespace v0 {

namespace detail {
template <int Guard>
struct guard_setting;

// Nobody calls this function. It defines a name for the linker. If all files have the same setting, the linker keeps one copy
// of the function, and one definition. With two settings there are two functions, and the name is defined twice: linkers refuse
// that and print the name. It is hidden, so that shared libraries may differ. It stands inside of a function because clang's
// link-time optimization takes equal definitions outside of any function for a conflict.
[[gnu::used, gnu::noinline, gnu::visibility("hidden")]] inline void agree(guard_setting<WEIR_GUARD>*) noexcept {
    asm volatile(".globl weir_files_differ_in_WEIR_GUARD\n"
                 ".hidden weir_files_differ_in_WEIR_GUARD\n"
                 "weir_files_differ_in_WEIR_GUARD:"
                 :
                 : "i"(WEIR_GUARD));
}
} // namespace detail

namespace recipe {
/// A pool made by `Recipe`: its parts, in layer::guard if `Guarded`. It has their constructors and members and none of its own.
template <class Recipe, bool Guarded>
class pool_of : public std::conditional_t<Guarded, layer::guard<typename Recipe::parts>, typename Recipe::parts> {
public:
    using parts = std::conditional_t<Guarded, layer::guard<typename Recipe::parts>, typename Recipe::parts>;
    using parts::parts;
};

/// Small blocks in size classes, large ones by best fit: holds little and is fast for any mix of sizes.
using general_placement = placement::by_size<64 * KiB, placement::bins<>, placement::best_fit<>>;

/// Mapped memory that grows in place. If it must be cudaMalloc's memory (cudaIpcGetMemHandle, GPUDirect RDMA, access from other
/// devices by cudaDeviceEnablePeerAccess), write the pool with upstream::device in place of the upstream and
/// growth::geometric<> in place of the growth policy.
template <class Reuse, class Growth = growth::by_holes<>>
using general_device_pool = pool<upstream::virtual_memory<>, general_placement, Reuse, Growth>;

/// compact_device_pool's growth: chunks of nearly a page each, and hardly more of them than ever were in use.
struct compact_whole : growth::paged_tuning {
    static constexpr std::size_t usual_chunks = 128;
    static constexpr std::size_t least_bytes = 2 * MiB;
};
struct compact_filled : compact_whole {
    static constexpr std::size_t usual_chunks = 256;
};
struct compact_holed : compact_whole {
    static constexpr std::size_t usual_chunks = 512;
};
struct compact_growth : growth::by_holes_tuning {
    using whole = growth::paged<compact_whole>;
    using filled = growth::paged<compact_filled>;
    using holed = growth::paged<compact_holed>;
    static constexpr unsigned moved_percent = 200;
};
/// Growth of host memory, of which programs use less: a small first chunk, then few.
struct host_growth : growth::geometric_tuning {
    static constexpr std::size_t first_bytes = 1 * MiB;
    static constexpr unsigned share_percent = 50;
    static constexpr std::size_t exact_bytes = 64 * MiB;
};
/// frame_pool's growth: twice as much each time, since a frame's chunks are used again from the first on.
struct frame_growth : growth::geometric_tuning {
    static constexpr unsigned share_percent = 100;
    static constexpr std::size_t exact_bytes = 256 * MiB;
};

/// Device memory for any program: any sizes, any number of streams and threads, streams that come and go.
struct device {
    using parts = general_device_pool<reuse::stream_ordered<identity::checked>>;
};
/// The same, for a program that promises that its streams outlive the pool's use of them (identity::promised): the fastest.
struct promised_device {
    using parts = general_device_pool<reuse::stream_ordered<identity::promised>>;
};
/// As device_pool, with the smallest footprint. It maps memory nearly page by page, which takes a cold pool longer, and a
/// stream waits for another stream's memory before the pool grows.
struct compact_device {
    using parts = general_device_pool<reuse::stream_ordered<identity::checked, handover::wait_first>,
                                      growth::by_holes<compact_growth>>;
};
/// Page-locked host memory for staging. A block freed on a stream may go to anyone once that stream has reached the free.
struct pinned {
    using parts = pool<upstream::registered_host, general_placement, reuse::after_event, growth::geometric<host_growth>>;
};
/// Managed memory, ordered by streams.
struct managed {
    using parts = pool<upstream::managed, general_placement, reuse::stream_ordered<>>;
};
/// Ordinary host memory, for one thread; no CUDA call.
struct host {
    using parts = pool<upstream::host, placement::by_size<64 * KiB, placement::bins<16>, placement::best_fit<64>>,
                       reuse::immediate, growth::geometric<host_growth>>;
};
/// Device memory that ends frame by frame: an allocation is an addition, and weir::scope ends the frame. One thread.
struct frames {
    using parts = pool<upstream::device, placement::arena, reuse::immediate, growth::geometric<frame_growth>>;
};
/// Pinned nodes of 64 bytes in O(1). One thread.
struct nodes {
    using parts = pool<upstream::pinned<>, placement::slab<64>, reuse::immediate, growth::fixed<1 * MiB>>;
};
} // namespace recipe

} // namespace v0
} // namespace weir
