// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: needs CCCL's headers (<toolkit>/include/cccl) as system headers; a host compiler will do.

#include "cub_caching.hpp"

#include <cub/util_allocator.cuh>
#include <cub/version.cuh>
#include <string>
#include <weir/runtime/check.hpp>

namespace weir_bench {

struct cub_caching::state {
    // growth 2, bins 2^8 to 2^30, a cache without bound, no clean-up at exit, no chatter
    cub::CachingDeviceAllocator pool{2, 8, 30, static_cast<std::size_t>(-1), false};
};

cub_caching::cub_caching() : state_(std::make_unique<state>()) {}
cub_caching::~cub_caching() = default;

void* cub_caching::allocate(cudaStream_t stream, std::size_t bytes) {
    void* p = nullptr;
    weir::check_cuda(state_->pool.DeviceAllocate(&p, bytes, stream),
                "cub::CachingDeviceAllocator::DeviceAllocate");
    return p;
}

void cub_caching::deallocate(cudaStream_t, void* p, std::size_t) {
    weir::check_cuda(state_->pool.DeviceFree(p), "cub::CachingDeviceAllocator::DeviceFree");
}

char const* cub_caching::version() {
    static std::string const text = std::to_string(CUB_MAJOR_VERSION) + "." +
                                    std::to_string(CUB_MINOR_VERSION) + "." +
                                    std::to_string(CUB_SUBMINOR_VERSION);
    return text.c_str();
}

} // namespace weir_bench
