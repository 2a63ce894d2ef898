// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: only where WEIR_BENCH_PLUGIN names a header that includes rmm_pools.hpp. Needs RMM 26.08 or later
// (include, include/rapids, which is the CCCL that it was made with, librmm, librapids_logger), before the
// toolkit's headers. C++20.

#include "rmm_pools.hpp"

#include <cuda/stream>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>
#include <string>

namespace weir_bench {

struct rmm_pool_resource {
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, std::size_t{256} << 20};
};

struct rmm_arena_resource {
    rmm::mr::arena_memory_resource pool{rmm::mr::cuda_memory_resource{}, std::size_t{32} << 30};
};

struct rmm_binning_resource {
    rmm::mr::pool_memory_resource large{rmm::mr::cuda_memory_resource{}, std::size_t{256} << 20};
    rmm::mr::binning_memory_resource pool{large, 8, 20};
};

template <class Which>
rmm_resource<Which>::rmm_resource() : resource_(std::make_unique<Which>()) {}
template <class Which>
rmm_resource<Which>::~rmm_resource() = default;

template <class Which>
void* rmm_resource<Which>::allocate(cudaStream_t stream, std::size_t bytes) {
    return resource_->pool.allocate(cuda::stream_ref{stream}, bytes, 256);
}

template <class Which>
void rmm_resource<Which>::deallocate(cudaStream_t stream, void* p, std::size_t bytes) {
    resource_->pool.deallocate(cuda::stream_ref{stream}, p, bytes, 256);
}

template <class Which>
char const* rmm_resource<Which>::version() {
    static std::string const text = std::to_string(RMM_VERSION_MAJOR) + "." +
                                    std::to_string(RMM_VERSION_MINOR) + "." +
                                    std::to_string(RMM_VERSION_PATCH);
    return text.c_str();
}

template class rmm_resource<rmm_pool_resource>;
template class rmm_resource<rmm_arena_resource>;
template class rmm_resource<rmm_binning_resource>;

} // namespace weir_bench
