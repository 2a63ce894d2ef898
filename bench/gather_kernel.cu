// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "gather_kernel.hpp"

namespace weir_bench {

namespace {

constexpr unsigned row_lanes = 32; // of 16 bytes: a row has 512

__global__ void gather(caches all, unsigned long long token_bytes, float* sum) {
    unsigned long long const rows = all.bytes[blockIdx.y] / (row_lanes * sizeof(float4));
    auto* const cache = static_cast<float4*>(all.data[blockIdx.y]);
    unsigned const lane = threadIdx.x % row_lanes;
    unsigned long long const first = (blockIdx.x * blockDim.x + threadIdx.x) / row_lanes;
    unsigned long long const stride = gridDim.x * blockDim.x / row_lanes;
    unsigned long long const old_rows = rows - token_bytes / (row_lanes * sizeof(float4));
    for (unsigned long long row = old_rows + first; row < rows; row += stride)
        cache[row * row_lanes + lane] = float4{0, 0, 0, 0};
    float own = 0;
    for (unsigned long long row = first; row < old_rows; row += stride) {
        float4 const part = cache[row * 2654435761ull % old_rows * row_lanes + lane];
        own += part.x + part.y + part.z + part.w;
    }
    if (own == 1) // never, which the compiler does not know
        *sum = own;
}

} // namespace

cudaError_t launch_gather(cudaStream_t stream, caches const& all, std::size_t token_bytes, float* sum) {
    gather<<<dim3(64, most_sequences), 256, 0, stream>>>(all, token_bytes, sum);
    return cudaGetLastError();
}

} // namespace weir_bench
