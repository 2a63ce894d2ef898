// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a step of a decode loop read the caches of many sequences?
//
// A kernel writes each sequence's newest token and then reads all of its tokens, in rows of 512 bytes that come in no order
// (gather_kernel.cu). On the simulated device: nothing but the write.

#include <cstddef>
#include <cuda_runtime_api.h>

namespace weir_bench {

constexpr std::size_t most_sequences = 32;

/// Where the caches are, and how many bytes of each there are.
struct caches {
    void* data[most_sequences];
    unsigned long long bytes[most_sequences];
};

/// `sum`: 4 bytes on the device.
#ifdef WEIR_BENCH_SIMULATED
inline cudaError_t launch_gather(cudaStream_t stream, caches const& all, std::size_t token_bytes, float*) {
    cudaError_t result = cudaSuccess;
    for (std::size_t i = 0; i != most_sequences && result == cudaSuccess; ++i)
        result = cudaMemsetAsync(static_cast<char*>(all.data[i]) + all.bytes[i] - token_bytes, 0, token_bytes, stream);
    return result;
}
#else
cudaError_t launch_gather(cudaStream_t stream, caches const& all, std::size_t token_bytes, float* sum);
#endif

} // namespace weir_bench
