// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do NVIDIA's tools see what lies in a pool?
//
// By NVTX, which comes with the CUDA toolkit. Two things, each of use alone:
//
//     weir::interop::nvtx::checked_device_pool pool;                        // for compute-sanitizer: borders of the blocks
//     weir::interop::nvtx::counted<weir::device_pool> pool;                 // for Nsight Systems: counters and ranges
//
// Use the first where the program makes its pool, and run it under 'compute-sanitizer': a kernel's access past a block's end,
// to a freed block, or between blocks is then reported (examples/checking.md). A pool of your own is checked by its parts:
// 'checked_blocks<pool<checked_chunks<Upstream>, ...>>', made from one checked_memory.
//
// order:     as device_pool; a free waits for the block's work.
// cost:      see nvtx::checked_blocks.
// not for:   NVTX of CUDA 12, which has neither memory nor counters. Programs that nobody checks: device_pool.

#if !__has_include(<nvtx3/nvToolsExtMem.h>)
#error "weir: interop/nvtx needs NVTX of the CUDA toolkit 13 or later (<nvtx3/nvToolsExtMem.h>); update it"
#endif

#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/interop/nvtx/checked_blocks.hpp>
#include <weir/interop/nvtx/checked_chunks.hpp>
#include <weir/interop/nvtx/checked_memory.hpp>
#include <weir/interop/nvtx/counted.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nvtx {

namespace detail {
struct own_memory { // a base, so that it begins before the pool and ends after it
    checked_memory memory;
};
template <class Upstream>
using checked_parts = checked_blocks<pool<checked_chunks<Upstream>, recipes::general_placement, reuse::stream_ordered<>>>;
} // namespace detail

/// A pool for any sizes, streams and threads, whose blocks compute-sanitizer sees. Made from pool_options, as device_pool.
template <class Upstream>
class checked_pool : private detail::own_memory, public detail::checked_parts<Upstream> {
    using chunks = checked_chunks<Upstream>;
    using checked_parts = detail::checked_parts<Upstream>;

public:
    checked_pool() : checked_pool(pool_options{}) {}
    /// Throws as device_pool's constructor does.
    explicit checked_pool(pool_options const& options)
        : checked_parts(own_memory::memory, chunks(own_memory::memory, contract::upstream_on<Upstream>(options.device())),
                        options) {}
    /// Whether a tool listens. False before the pool has a chunk.
    bool has_tool() const noexcept { return own_memory::memory.has_tool(); }
};

/// A checked_pool of device memory.
using checked_device_pool = checked_pool<upstream::device>;
/// A checked_pool of page-locked memory of the host.
using checked_pinned_pool = checked_pool<upstream::pinned<>>;
/// A checked_pool of managed memory.
using checked_managed_pool = checked_pool<upstream::managed>;

} // namespace nvtx
} // namespace interop
} // namespace v0
} // namespace weir
