// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// CUDA itself does not run out of host memory here: while one of its calls runs, allocations succeed.
//
// Include it before any header of weir, in every file of this folder, so that all see the same calls.

#include <cuda_runtime_api.h>
#include <support/failing_new.hpp>
#include <utility>

namespace shield {

/// Allocations of this thread succeed while it lives.
class pause {
public:
    pause() : left_(std::exchange(support::allocations_left, -1)) {}
    pause(pause const&) = delete;
    pause& operator=(pause const&) = delete;
    ~pause() { support::allocations_left = left_; }

private:
    long left_;
};

template <class... Parameters, class... Arguments>
cudaError_t call(cudaError_t (*function)(Parameters...), Arguments const&... arguments) {
    pause const here;
    return function(static_cast<Parameters>(arguments)...);
}

} // namespace shield

#define cudaDeviceSynchronize() shield::call(::cudaDeviceSynchronize)
#define cudaEventCreateWithFlags(...) shield::call(::cudaEventCreateWithFlags, __VA_ARGS__)
#define cudaEventDestroy(...) shield::call(::cudaEventDestroy, __VA_ARGS__)
#define cudaEventQuery(...) shield::call(::cudaEventQuery, __VA_ARGS__)
#define cudaEventRecord(...) shield::call(::cudaEventRecord, __VA_ARGS__)
#define cudaEventSynchronize(...) shield::call(::cudaEventSynchronize, __VA_ARGS__)
#define cudaFreeHost(...) shield::call(::cudaFreeHost, __VA_ARGS__)
#define cudaGetDevice(...) shield::call(static_cast<cudaError_t (*)(int*)>(::cudaGetDevice), __VA_ARGS__)
#define cudaFreeAsync(...) shield::call(::cudaFreeAsync, __VA_ARGS__)
#define cudaGetDeviceCount(...) shield::call(::cudaGetDeviceCount, __VA_ARGS__)
#define cudaMemPoolCreate(...) shield::call(::cudaMemPoolCreate, __VA_ARGS__)
#define cudaMemPoolDestroy(...) shield::call(::cudaMemPoolDestroy, __VA_ARGS__)
#define cudaMemPoolGetAttribute(...) shield::call(::cudaMemPoolGetAttribute, __VA_ARGS__)
#define cudaMemPoolSetAttribute(...) shield::call(::cudaMemPoolSetAttribute, __VA_ARGS__)
#define cudaMemPoolTrimTo(...) shield::call(::cudaMemPoolTrimTo, __VA_ARGS__)
#define cudaMemcpyAsync(...) shield::call(::cudaMemcpyAsync, __VA_ARGS__)
#define cudaMemsetAsync(...) shield::call(::cudaMemsetAsync, __VA_ARGS__)
#define cudaSetDevice(...) shield::call(::cudaSetDevice, __VA_ARGS__)
#define cudaStreamCreateWithFlags(...) shield::call(::cudaStreamCreateWithFlags, __VA_ARGS__)
#define cudaStreamDestroy(...) shield::call(::cudaStreamDestroy, __VA_ARGS__)
#define cudaStreamGetDevice(...) shield::call(::cudaStreamGetDevice, __VA_ARGS__)
#define cudaStreamGetId(...) shield::call(::cudaStreamGetId, __VA_ARGS__)
#define cudaStreamIsCapturing(...) shield::call(::cudaStreamIsCapturing, __VA_ARGS__)
#define cudaStreamSynchronize(...) shield::call(::cudaStreamSynchronize, __VA_ARGS__)
#define cudaStreamWaitEvent(...) shield::call(::cudaStreamWaitEvent, __VA_ARGS__)
#define cudaThreadExchangeStreamCaptureMode(...)                                                             \
    shield::call(::cudaThreadExchangeStreamCaptureMode, __VA_ARGS__)
#define cudaFree(...) shield::call(static_cast<cudaError_t (*)(void*)>(::cudaFree), __VA_ARGS__)
#define cudaMalloc(...)                                                                                      \
    shield::call(static_cast<cudaError_t (*)(void**, std::size_t)>(::cudaMalloc), __VA_ARGS__)
#define cudaHostAlloc(...)                                                                                   \
    shield::call(static_cast<cudaError_t (*)(void**, std::size_t, unsigned)>(::cudaHostAlloc), __VA_ARGS__)
#define cudaMallocFromPoolAsync(...)                                                                         \
    shield::call(static_cast<cudaError_t (*)(void**, std::size_t, cudaMemPool_t, cudaStream_t)>(             \
                     ::cudaMallocFromPoolAsync),                                                             \
                 __VA_ARGS__)
#define cudaMallocManaged(...)                                                                               \
    shield::call(static_cast<cudaError_t (*)(void**, std::size_t, unsigned)>(::cudaMallocManaged),           \
                 __VA_ARGS__)
