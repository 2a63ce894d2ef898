// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "contender.hpp"

#include <weir/order/order_after.hpp>

namespace replay {

void put_after(cudaStream_t later, cudaStream_t earlier) {
    weir::order_after(later, earlier);
}

std::vector<contender> const& contenders() {
    static std::vector<contender> const all{
        {"device_pool", "weir's recipe for device memory: bins and best fit over mapped pages, stream-ordered",
         open_device_pool, true, false, true},
        {"compact_device_pool", "weir's recipe with the smallest footprint: mapped page by page", open_compact_device_pool,
         true, false, true},
        {"promised_device_pool", "device_pool for programs that promise not to end a stream early: no look at who a stream is",
         open_promised_device_pool, true, false, true},
        {"composed_pool",
         "composed in examples/replay/composed_pool.hpp: best fit alone, in chunks of 64 MiB",
         open_composed_pool, true},
        {"cudaMalloc", "no pool: cudaMalloc and cudaFree for every block", open_cuda_malloc},
        {"driver_pool", "CUDA's own pool, cudaMallocFromPoolAsync, through weir's interface",
         open_driver_pool, false, true},
        {"cub", "cub::CachingDeviceAllocator as it comes: powers of 8, caches 6 MB at most", open_cub},
        {"thrust",
         "thrust::mr::disjoint_unsynchronized_pool_resource over cudaMalloc: powers of 2, knows no streams",
         open_thrust},
    };
    return all;
}

} // namespace replay
