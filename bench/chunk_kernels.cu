// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench-staging, not of its simulated twin; nvcc, CCCL.

#include "chunk_kernels.hpp"

#include <thrust/sort.h>
#include <weir/converting/converting_kernel.cuh>
#include <weir/interop/thrust.hpp>

namespace weir_bench {

namespace {

constexpr unsigned blocks = 528, threads = 256;

__global__ void sum_kernel(float const* from, std::size_t count, double* total) {
    double mine = 0;
    std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        mine += from[i];
    for (int lane = 16; lane != 0; lane /= 2)
        mine += __shfl_down_sync(0xFFFFFFFFu, mine, lane);
    if (threadIdx.x % 32 == 0)
        atomicAdd(total, mine);
}

__global__ void scale_kernel(float* numbers, std::size_t count) {
    std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        numbers[i] *= 2;
}

} // namespace

cudaError_t launch_sum(cudaStream_t stream, float const* from, std::size_t count, double* total) {
    sum_kernel<<<blocks, threads, 0, stream>>>(from, count, total);
    return cudaGetLastError();
}

cudaError_t launch_halve(cudaStream_t stream, __half* to, float const* from, std::size_t count, unsigned in_blocks) {
    weir::converting::converting_kernel{in_blocks}(stream, weir::converting_view<float, __half>(to, count), from);
    return cudaSuccess;
}

cudaError_t launch_scale(cudaStream_t stream, float* numbers, std::size_t count) {
    scale_kernel<<<blocks, threads, 0, stream>>>(numbers, count);
    return cudaGetLastError();
}

cudaError_t launch_sort(cudaStream_t stream, unsigned* keys, std::size_t count,
                        weir::pool_ref<weir::memory_space::device> pool) {
    thrust::sort(weir::interop::thrust::par_nosync(pool, stream), keys, keys + count);
    return cudaGetLastError();
}

} // namespace weir_bench
