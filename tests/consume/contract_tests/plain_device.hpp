// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// An upstream of one's own.
#include <cuda_runtime_api.h>
#include <weir/weir.hpp>

struct plain_device {
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::device;

    void* acquire(std::size_t bytes) {
        void* p = nullptr;
        if (cudaMalloc(&p, bytes) == cudaSuccess)
            return p;
        static_cast<void>(cudaGetLastError());
        return nullptr;
    }
    void release(void* p, std::size_t) noexcept { static_cast<void>(cudaFree(p)); }
};
