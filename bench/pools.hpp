// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pools are asked?
//
// weir's compositions, what the CUDA toolkit offers, and malloc for scale; and what a plug-in adds: a header
// named by -DWEIR_BENCH_PLUGIN='"file.hpp"' that defines 'weir_bench::plugin_pools' (README.md). An adapter
// is a class that is made fresh for each measurement and has
//
//     static constexpr char const* name;              what the tables call it: no '/', no space
//     static constexpr unsigned able;                 what it may be asked: a sum of the abilities below
//     void* allocate(cudaStream_t, std::size_t bytes);                 throws when there is no room
//     void deallocate(cudaStream_t, void*, std::size_t bytes);
//     static char const* version();                   its library's, for the report; may be left out
//
// invariant: an adapter adds no work of its own to a call but what its library asks of every user.
// not for:   foreign headers: an adapter of a heavy library declares here and defines in its own source.

#include "abilities.hpp"
#include "peers/cccl_pool.hpp"
#include "peers/cub_caching.hpp"
#include "peers/plain_cuda.hpp"
#include "peers/thrust_disjoint.hpp"
#include "weir_pools.hpp"

#ifdef WEIR_BENCH_PLUGIN
#include WEIR_BENCH_PLUGIN
#endif

namespace weir_bench {

#ifndef WEIR_BENCH_PLUGIN
using plugin_pools = pool_list<>;
#endif

#ifdef WEIR_BENCH_CCCL_POOL
using cccl_pools = pool_list<cccl_pool>;
#else
using cccl_pools = pool_list<>;
#endif

/// Every pool, in the order of the tables.
using every_pool = joined<weir_pools, pool_list<cuda_malloc_async>, cccl_pools, plugin_pools,
                          pool_list<cub_caching, thrust_disjoint, cuda_malloc, host_malloc, harness>>;

/// Calls action(type<Pool>{}) for every pool.
template <class Action>
void for_each_pool(Action const& action) {
    for_each(every_pool{}, action);
}

} // namespace weir_bench
