// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench, not of weir-bench-simulated; nvcc.

#include "busy_kernel.hpp"

namespace weir_bench {

namespace {

constexpr long long cycles = 200'000;

__global__ void busy_kernel(unsigned char* p, std::size_t bytes) {
    long long const start = clock64();
    if (threadIdx.x < bytes)
        p[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
    while (clock64() - start < cycles) {
    }
}

} // namespace

cudaError_t launch_busy_kernel(cudaStream_t stream, void* p, std::size_t bytes) {
    busy_kernel<<<1, 32, 0, stream>>>(static_cast<unsigned char*>(p), bytes);
    return cudaGetLastError();
}

} // namespace weir_bench
