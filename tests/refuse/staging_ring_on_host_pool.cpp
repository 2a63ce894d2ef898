// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a ring needs page-locked memory, between which and the device a stream copies while the host goes on, and a host
// pool's is pageable; give the ring a pinned pool, such as 'weir::pinned_pool'
#include <weir/recipes.hpp>
#include <weir/staging/pinned_ring.hpp>

#ifdef REJECT
using pool_type = weir::host_pool;
#else
using pool_type = weir::pinned_pool;
#endif

void use(pool_type& pool) {
    weir::staging::pinned_ring const ring(pool);
}
