// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is a kernel that keeps a stream busy, and little else of the device?
//
// On a GPU: one block of threads that writes to the bytes and spins for about a tenth of a millisecond
// (busy_kernel.cu), so that dozens run at once where nothing makes them wait. On the simulated device: work that
// writes the bytes, so that it sees who was given them too early.
//
// not for:   the device's speed.

#include <cstddef>
#include <cuda_runtime_api.h>
#ifdef WEIR_BENCH_SIMULATED
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace weir_bench {

#ifdef WEIR_BENCH_SIMULATED
inline cudaError_t launch_busy_kernel(cudaStream_t stream, void* p, std::size_t bytes) {
    return simulated_cuda::launch(stream, {}, {{p, bytes}});
}
#else
cudaError_t launch_busy_kernel(cudaStream_t stream, void* p, std::size_t bytes);
#endif

} // namespace weir_bench
