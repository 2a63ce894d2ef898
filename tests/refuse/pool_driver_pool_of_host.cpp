// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: driver_pool_of: CUDA has pools of device, pinned and managed memory
#include <weir/base/memory_space.hpp>
#include <weir/driver/driver_pool.hpp>

#ifdef REJECT
using my_pool = weir::driver_pool_of<weir::memory_space::host>;
#else
using my_pool = weir::driver_pool_of<weir::memory_space::pinned>;
#endif

void* use(my_pool& pool, cudaStream_t stream) {
    return pool.allocate(stream, 10);
}
