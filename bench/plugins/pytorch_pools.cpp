// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: only where WEIR_BENCH_PLUGIN names a header that includes pytorch_pools.hpp. Needs PyTorch's headers
// (torch/include, torch/include/torch/csrc/api/include) and libc10_cuda and libc10 (torch/lib), all inside of
// the Python package. C++20, as PyTorch asks.

#include "pytorch_pools.hpp"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <torch/version.h>

namespace weir_bench {

pytorch_caching::pytorch_caching(bool expandable) {
    static bool const ready = [] {
        int devices = 0;
        static_cast<void>(cudaGetDeviceCount(&devices));
        c10::cuda::detail::init_p2p_access_cache(devices); // expandable segments ask it
        c10::cuda::CUDACachingAllocator::init(devices);
        return true;
    }();
    static_cast<void>(ready);
    c10::cuda::CUDACachingAllocator::emptyCache(); // what the other kind of segments holds
    c10::CachingAllocator::setAllocatorSettings(expandable ? "expandable_segments:True" : "expandable_segments:False");
}

pytorch_caching::~pytorch_caching() {
    try {
        c10::cuda::CUDACachingAllocator::emptyCache();
    } catch (...) { // the device is lost; the next pool that is made will say so
    }
}

void* pytorch_caching::allocate(cudaStream_t stream, std::size_t bytes) {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
}

void pytorch_caching::deallocate(cudaStream_t, void* p, std::size_t) {
    c10::cuda::CUDACachingAllocator::raw_delete(p);
}

char const* pytorch_caching::version() {
    return TORCH_VERSION;
}

} // namespace weir_bench
