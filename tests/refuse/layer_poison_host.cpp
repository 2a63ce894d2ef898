// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::poison fills blocks by work on their streams: it wraps a pool of memory that a device reaches (device, pinned or managed), and no host pool
#include <weir/layer/poison.hpp>
#include <weir/recipes.hpp>

#ifdef REJECT
using wrapped = weir::host_pool;
#else
using wrapped = weir::pinned_pool;
#endif

inline constexpr bool ordered = weir::layer::poison<wrapped>::stream_ordered;
