// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: 'allocate' takes the stream first: 'allocate(stream, bytes)'; memory that no stream
#include <weir/recipes/device_pool.hpp>

void* get(weir::device_pool& pool) {
#ifdef REJECT
    return pool.allocate(100);
#else
    return pool.allocate_sync(100);
#endif
}
