// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: 'deallocate' takes the block before its bytes: 'deallocate(stream, p, bytes)'
#include <weir/recipes/device_pool.hpp>

void give(weir::device_pool& pool, cudaStream_t stream, void* p) {
#ifdef REJECT
    pool.deallocate(stream, 1000, p);
#else
    pool.deallocate(stream, p, 1000);
#endif
}
