// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// CUDA itself does not run out of host memory here: while one of its calls runs, allocations succeed.
//
// Include it before any header of weir, in every file of this folder, so that all see the same calls.

#include <cstring>
#include <cuda.h>
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

// A driver function that is found by its name, behind the same shield. `Which` keeps functions of one type apart.
template <int Which, class Function>
struct driver;
template <int Which, class... Parameters>
struct driver<Which, CUresult(Parameters...)> {
    static CUresult call(Parameters... parameters) {
        pause const here;
        return original(parameters...);
    }
    static void cover(char const* wanted, char const* name, void** found) {
        if (std::strcmp(wanted, name) != 0 || *found == nullptr)
            return;
        original = reinterpret_cast<CUresult (*)(Parameters...)>(*found);
        *found = reinterpret_cast<void*>(&call);
    }
    inline static CUresult (*original)(Parameters...) = nullptr;
};

inline cudaError_t entry_point(char const* name, void** found, unsigned version, unsigned long long flags,
                               cudaDriverEntryPointQueryResult* result) {
    pause const here;
    cudaError_t const error = cudaGetDriverEntryPointByVersion(name, found, version, flags, result);
    if (error == cudaSuccess) {
        driver<0, decltype(cuMemGetAllocationGranularity)>::cover(name, "cuMemGetAllocationGranularity", found);
        driver<1, decltype(cuMemAddressReserve)>::cover(name, "cuMemAddressReserve", found);
        driver<2, decltype(cuMemAddressFree)>::cover(name, "cuMemAddressFree", found);
        driver<3, decltype(cuMemCreate)>::cover(name, "cuMemCreate", found);
        driver<4, decltype(cuMemRelease)>::cover(name, "cuMemRelease", found);
        driver<5, decltype(cuMemMap)>::cover(name, "cuMemMap", found);
        driver<6, decltype(cuMemUnmap)>::cover(name, "cuMemUnmap", found);
        driver<7, decltype(cuMemSetAccess)>::cover(name, "cuMemSetAccess", found);
        driver<8, decltype(cuEventRecord)>::cover(name, "cuEventRecord", found);
        driver<9, decltype(cuEventQuery)>::cover(name, "cuEventQuery", found);
        driver<10, decltype(cuStreamWaitEvent)>::cover(name, "cuStreamWaitEvent", found);
        driver<11, decltype(cuMemAllocFromPoolAsync)>::cover(name, "cuMemAllocFromPoolAsync", found);
        driver<12, decltype(cuMemFreeAsync)>::cover(name, "cuMemFreeAsync", found);
        driver<13, decltype(cuStreamGetId)>::cover(name, "cuStreamGetId", found);
        driver<14, decltype(cuStreamIsCapturing)>::cover(name, "cuStreamIsCapturing", found);
    }
    return error;
}

} // namespace shield

#define cudaGetDriverEntryPointByVersion(...) shield::entry_point(__VA_ARGS__)
#define cudaMemGetInfo(...) shield::call(::cudaMemGetInfo, __VA_ARGS__)

#define cudaDeviceSynchronize() shield::call(::cudaDeviceSynchronize)
#define cudaEventCreateWithFlags(...) shield::call(::cudaEventCreateWithFlags, __VA_ARGS__)
#define cudaEventDestroy(...) shield::call(::cudaEventDestroy, __VA_ARGS__)
#define cudaEventQuery(...) shield::call(::cudaEventQuery, __VA_ARGS__)
#define cudaEventRecord(...) shield::call(::cudaEventRecord, __VA_ARGS__)
#define cudaEventSynchronize(...) shield::call(::cudaEventSynchronize, __VA_ARGS__)
#define cudaFreeHost(...) shield::call(::cudaFreeHost, __VA_ARGS__)
#define cudaHostRegister(...) shield::call(::cudaHostRegister, __VA_ARGS__)
#define cudaHostUnregister(...) shield::call(::cudaHostUnregister, __VA_ARGS__)
#define cudaGetDevice(...) shield::call(static_cast<cudaError_t (*)(int*)>(::cudaGetDevice), __VA_ARGS__)
#define cudaFreeAsync(...) shield::call(::cudaFreeAsync, __VA_ARGS__)
#define cudaGetDeviceCount(...) shield::call(::cudaGetDeviceCount, __VA_ARGS__)
#define cudaMemPoolCreate(...) shield::call(::cudaMemPoolCreate, __VA_ARGS__)
#define cudaMemPoolDestroy(...) shield::call(::cudaMemPoolDestroy, __VA_ARGS__)
#define cudaMemPoolGetAttribute(...) shield::call(::cudaMemPoolGetAttribute, __VA_ARGS__)
#define cudaMemPoolSetAttribute(...) shield::call(::cudaMemPoolSetAttribute, __VA_ARGS__)
#define cudaMemPoolTrimTo(...) shield::call(::cudaMemPoolTrimTo, __VA_ARGS__)
#define cudaMemcpyAsync(...) shield::call(::cudaMemcpyAsync, __VA_ARGS__)
#define cudaMemcpyBatchAsync(...)  /* which nvcc knows several of */                                           \
    ([&] {                                                                                                   \
        shield::pause const here;                                                                            \
        return ::cudaMemcpyBatchAsync(__VA_ARGS__);                                                          \
    }())
#define cudaPointerGetAttributes(...) shield::call(::cudaPointerGetAttributes, __VA_ARGS__)
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
