// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Takes blocks of a pool and gives them back, and tells the simulated device of each, so that it can report a
// block that is handed out twice, too early, or outside the driver's memory. What the driver's own pool hands
// out the device knows by itself, and the host's heap is not its business. On a GPU these are the pool's calls.

#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <type_traits>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/stream.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace support {

template <class Pool>
using cuda_pool = decltype(std::declval<Pool&>().get());
template <class Pool>
using wrapped_pool = typename Pool::pool_type;
template <class Pool>
using second_pool = std::decay_t<decltype(std::declval<Pool&>().second())>;

/// Whether the simulator is told of blocks of `Pool`: a pool on chunks of CUDA's, or a layer around such pools.
template <class Pool>
constexpr bool is_noted() {
    namespace contract = weir::contract;
    if constexpr (contract::holds<wrapped_pool, Pool>)
        return is_noted<typename Pool::pool_type>();
    else if constexpr (contract::holds<second_pool, Pool>)
        return is_noted<std::decay_t<decltype(std::declval<Pool&>().first())>>() && is_noted<second_pool<Pool>>();
    else
        return weir::base::device_accessible(Pool::space) && !contract::holds<cuda_pool, Pool>;
}

/// Notes that a pool handed out `p` on `stream`.
template <class Pool>
void note_taken(Pool const&, weir::stream_ref stream, void* p, std::size_t bytes) {
#ifdef WEIR_SIMULATED_CUDA
    if (!p || !is_noted<Pool>())
        return;
    if (stream.is_host())
        simulated_cuda::note_allocate_host(p, bytes);
    else
        simulated_cuda::note_allocate(p, bytes, stream.get());
#else
    static_cast<void>(stream), static_cast<void>(p), static_cast<void>(bytes);
#endif
}

/// Allocates, checks the alignment, and notes. Null where the pool has no room.
template <class Pool>
void* try_take(Pool& pool, weir::stream_ref stream, std::size_t bytes,
               std::size_t alignment = Pool::default_alignment) {
    void* const p = pool.try_allocate(stream, bytes, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    note_taken(pool, stream, p, bytes);
    return p;
}

/// The same, and throws where there is no room.
template <class Pool>
void* take(Pool& pool, weir::stream_ref stream, std::size_t bytes,
           std::size_t alignment = Pool::default_alignment) {
    void* const p = pool.allocate(stream, bytes, alignment);
    CHECK((p != nullptr) == (bytes != 0));
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    note_taken(pool, stream, p, bytes);
    return p;
}

/// Notes, and gives the block back.
template <class Pool>
void give(Pool& pool, weir::stream_ref stream, void* p, std::size_t bytes,
          std::size_t alignment = Pool::default_alignment) {
#ifdef WEIR_SIMULATED_CUDA
    if (p && is_noted<Pool>()) {
        if (stream.is_host())
            simulated_cuda::note_free_host(p, bytes);
        else
            simulated_cuda::note_free(p, bytes, stream.get());
    }
#endif
    pool.deallocate(stream, p, bytes, alignment);
}

} // namespace support
