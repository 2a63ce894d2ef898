// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench, not of weir-bench-simulated; nvcc, CCCL.

#include "sort_keys.hpp"

#include <thrust/sort.h>
#include <weir/interop/thrust.hpp>

namespace weir_bench {

void sort_keys(unsigned* keys, std::size_t count, cudaStream_t stream) {
    thrust::sort(thrust::cuda::par.on(stream), keys, keys + count);
}

void sort_keys(unsigned* keys, std::size_t count, cudaStream_t stream, weir::pool_ref<weir::memory_space::device> pool) {
    thrust::sort(weir::interop::thrust::par(pool, stream), keys, keys + count);
}

} // namespace weir_bench
