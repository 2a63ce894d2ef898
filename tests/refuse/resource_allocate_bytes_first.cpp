// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: 'allocate' takes the stream first, and then the bytes: 'allocate(stream, bytes)'
#include <weir/recipes/device_pool.hpp>

void* take(weir::device_pool& pool, cudaStream_t stream) {
#ifdef REJECT
    return pool.allocate(1000, stream);
#else
    return pool.allocate(stream, 1000);
#endif
}
