// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: 'allocate' takes the stream first
#include <weir/weir.hpp>

struct my_stream {
    cudaStream_t handle;
#ifndef REJECT
    cudaStream_t get() const { return handle; }
#endif
};

void* use(weir::device_pool& pool, my_stream stream) {
    return pool.allocate(stream, 1000);
}
