// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The driver's pools whose memory the host reaches too: which of them does this CUDA have?

#include <cuda_runtime_api.h>
#include <weir/driver/driver_pool.hpp>

#if CUDART_VERSION >= 13000
#define SUPPORT_HOST_DRIVER_POOLS weir::pinned_driver_pool, weir::managed_driver_pool
#else
#define SUPPORT_HOST_DRIVER_POOLS weir::pinned_driver_pool
#endif
