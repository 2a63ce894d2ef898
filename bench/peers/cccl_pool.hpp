// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// CCCL's own pool, cuda::device_memory_pool, behind two functions.
//
// It came with CCCL 3.2, after the toolkit of CUDA 13.0; it wraps the driver's pool, as cudaMallocAsync does.
// WEIR_BENCH_CCCL_POOL says that the headers have it, for all sources of the program. It asks the driver for
// its functions by itself, so it is not there on the simulated device.

#include "../abilities.hpp"

#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>

namespace weir_bench {

#ifdef WEIR_BENCH_CCCL_POOL
class cccl_pool {
public:
    static constexpr char const* name = "cuda::device_memory_pool";
    static constexpr unsigned able = everything;

    cccl_pool();
    ~cccl_pool();
    void* allocate(cudaStream_t stream, std::size_t bytes);
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes);

    /// CCCL's version, as 'major.minor.patch'.
    static char const* version();

private:
    struct state;
    std::unique_ptr<state> state_;
};
#endif

} // namespace weir_bench
