// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: only with WEIR_BENCH_CCCL_POOL defined (for the whole program), where <cuda/memory_pool> exists:
// CCCL 3.2 or later, whose include folder must then come before the toolkit's in this source alone. Not
// linked with the simulated device. A host compiler will do.

#include "cccl_pool.hpp"

#ifdef WEIR_BENCH_CCCL_POOL

#include <cuda/devices>
#include <cuda/memory_pool>
#include <cuda/stream>
#include <string>
#include <weir/runtime/devices.hpp>

namespace weir_bench {

struct cccl_pool::state {
    cuda::device_memory_pool pool{cuda::device_ref{weir::runtime::current_device()}};
};

cccl_pool::cccl_pool() : state_(std::make_unique<state>()) {}
cccl_pool::~cccl_pool() = default;

void* cccl_pool::allocate(cudaStream_t stream, std::size_t bytes) {
    return state_->pool.allocate(cuda::stream_ref{stream}, bytes, 256);
}

void cccl_pool::deallocate(cudaStream_t stream, void* p, std::size_t bytes) {
    state_->pool.deallocate(cuda::stream_ref{stream}, p, bytes, 256);
}

char const* cccl_pool::version() {
    static std::string const text = std::to_string(CCCL_MAJOR_VERSION) + "." +
                                    std::to_string(CCCL_MINOR_VERSION) + "." +
                                    std::to_string(CCCL_PATCH_VERSION);
    return text.c_str();
}

} // namespace weir_bench

#endif
