// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a host program sort on the device with Thrust, without Thrust's headers?
//
// The functions are compiled by nvcc, in sort_keys.cu. Both return when the keys are sorted.
//
// not for:   the simulated device, which runs no kernels.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/resource/pool_ref.hpp>

namespace weir_bench {

/// With Thrust's own storage, which is from cudaMalloc.
void sort_keys(unsigned* keys, std::size_t count, cudaStream_t stream);

/// With storage from `pool`.
void sort_keys(unsigned* keys, std::size_t count, cudaStream_t stream, weir::pool_ref<weir::memory_space::device> pool);

} // namespace weir_bench
