// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host touches this memory, and a device pool's is out of its reach; use a pinned or managed pool,
#include <weir/recipes.hpp>

#ifdef REJECT
using kept_in = weir::device_pool;
#else
using kept_in = weir::pinned_pool;
#endif

void use(weir::compact_device_pool& pool, kept_in& keep) {
    pool.suspend(keep);
}
