// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: needs the CUDA toolkit 12.8 or later, whose runtime tells a stream's device; update it
#include <cuda_runtime_api.h>
#ifdef REJECT
#undef CUDART_VERSION
#define CUDART_VERSION 12070
#endif
#include <weir/runtime/check.hpp>

void flush() {
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
