// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which of weir's pools are asked?
//
// The recipes that a user would take for device memory, checked, promised and compact, and for managed memory; the same
// placement under simpler reuse rules; the driver's pool behind weir's face; layers over the default pool. They are
// release pools: with NDEBUG, as users ship them, and the default alignment.
//
// not for:   what a layer or a placement costs by itself: bench/instructions.cpp counts that.

#include "abilities.hpp"

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/recipes.hpp>

namespace weir_bench {

/// A pool of weir's with its defaults. The pool is reached as users reach it: inline.
template <class Pool>
class plain {
public:
    template <class... Arguments>
    explicit plain(Arguments... arguments) : pool_(arguments...) {}
    void* allocate(cudaStream_t stream, std::size_t bytes) { return pool_.allocate(stream, bytes); }
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes) { pool_.deallocate(stream, p, bytes); }
    Pool& inner() noexcept { return pool_; }

private:
    Pool pool_;
};

/// What device_pool is made of, for pools that differ from it in one slot.
using device_placement = weir::recipes::general_placement;

struct device_pool : plain<weir::device_pool> {
    static constexpr char const* name = "weir::device_pool";
    static constexpr unsigned able = everything | suspends;
};

struct promised_device_pool : plain<weir::promised_device_pool> {
    static constexpr char const* name = "weir::promised_device_pool";
    static constexpr unsigned able = everything & ~come_and_go;
};

struct compact_device_pool : plain<weir::compact_device_pool> {
    static constexpr char const* name = "weir::compact_device_pool";
    static constexpr unsigned able = everything;
};

struct managed_pool : plain<weir::managed_pool> {
    static constexpr char const* name = "weir::managed_pool";
    static constexpr unsigned able = everything & ~on_device;
};

struct watched_pool : plain<weir::layer::limit<weir::layer::statistics<weir::device_pool>>> {
    watched_pool() : plain(256 * weir::GiB) {}
    static constexpr char const* name = "weir::limit<statistics>";
    static constexpr unsigned able = everything;
};

struct after_event_pool
    : plain<weir::pool<weir::upstream::device, device_placement, weir::reuse::after_event>> {
    static constexpr char const* name = "weir::after_event";
    static constexpr unsigned able = everything & ~millions;
};

struct immediate_pool : plain<weir::pool<weir::upstream::device, device_placement, weir::reuse::immediate>> {
    static constexpr char const* name = "weir::immediate";
    static constexpr unsigned able = bulk | millions | on_device | side_by_side;
};

struct immediate_pinned_pool
    : plain<weir::pool<weir::upstream::pinned<>, device_placement, weir::reuse::immediate>> {
    static constexpr char const* name = "weir::immediate_pinned";
    static constexpr unsigned able = 0;
};

struct driver_pool : plain<weir::driver_pool> {
    static constexpr char const* name = "weir::driver_pool";
    static constexpr unsigned able = everything;
};

using weir_pools = pool_list<device_pool, promised_device_pool, compact_device_pool, managed_pool, watched_pool,
                             after_event_pool, immediate_pool, immediate_pinned_pool, driver_pool>;

} // namespace weir_bench
