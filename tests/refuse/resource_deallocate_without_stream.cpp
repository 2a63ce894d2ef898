// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: 'deallocate' takes the stream first: 'deallocate(stream, p, bytes)'; memory that nothing uses any more is
#include <weir/recipes/device_pool.hpp>

void give(weir::device_pool& pool, void* p) {
#ifdef REJECT
    pool.deallocate(p, 1000);
#else
    pool.deallocate_sync(p, 1000);
#endif
}
