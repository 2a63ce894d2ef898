// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// RMM's pools (rapidsai/rmm), behind plain functions, so that no other source includes RMM.
//
// Pool, arena, and binning over the pool, all over cudaMalloc. The pool starts with 256 MiB; the arena takes
// 32 GiB at once, for by default it takes half of the device; the bins are 256 bytes to 1 MiB. Streams are told
// apart by their handles: not for streams that come and go.

#include "../abilities.hpp"

#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>

namespace weir_bench {

/// One of RMM's memory resources; `Which` is known to rmm_pools.cpp.
template <class Which>
class rmm_resource {
public:
    rmm_resource();
    ~rmm_resource();
    void* allocate(cudaStream_t stream, std::size_t bytes);
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes);
    static char const* version();

private:
    std::unique_ptr<Which> resource_;
};

struct rmm_pool_resource;
struct rmm_arena_resource;
struct rmm_binning_resource;

// A million blocks: the pool walks its list of free blocks, the arena its sets; minutes, not seconds.
struct rmm_pool : rmm_resource<rmm_pool_resource> {
    static constexpr char const* name = "rmm::pool";
    static constexpr unsigned able =
        many_threads | any_stream | bulk | on_device | in_flight | side_by_side | per_thread_streams;
};

struct rmm_arena : rmm_resource<rmm_arena_resource> {
    static constexpr char const* name = "rmm::arena";
    static constexpr unsigned able = many_threads | any_stream | bulk | on_device | in_flight | per_thread_streams;
};

struct rmm_binning : rmm_resource<rmm_binning_resource> {
    static constexpr char const* name = "rmm::binning";
    static constexpr unsigned able =
        many_threads | any_stream | bulk | millions | on_device | in_flight | side_by_side | per_thread_streams;
};

using rmm_pools = pool_list<rmm_pool, rmm_arena, rmm_binning>;

} // namespace weir_bench
