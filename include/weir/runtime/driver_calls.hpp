// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does weir make the CUDA calls of its usual path without the time that the CUDA runtime adds?
//
// A call through the runtime takes 10 to 40 ns more than the driver's function behind it, and twice that if the host is slow:
// 63 instead of 22 ns for cudaStreamGetId, 172 instead of 148 for cudaEventRecord, 147 instead of 112 for
// cudaStreamWaitEvent. The driver's functions are looked up once, through the runtime, so there is nothing more to link. In
// three cases the runtime is called all the same: for the handle 0, which means another stream in each variant of a function;
// in a thread without a context, which only the runtime makes; and if the driver has no such function.
//
// A look-up that fails twice in a row counts as a function that the driver does not have, until the process ends.
//
// invariant: each call does and answers what the runtime's function would. But no error stays on CUDA's per-thread record,
//            whichever function was called.
// order:     do not ask for the id of a captured stream: CUDA refuses, and breaks the capture.
// cost:      that of the driver's function. The first call in a process looks the functions up.
// not for:   calls off the usual path: they go through the runtime, whose errors say more.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace weir {
inline namespace v0 {
namespace runtime {

/// Whether `stream` is one of CUDA's default streams (0, cudaStreamLegacy, cudaStreamPerThread), whose handle is a
/// fixed value.
inline bool is_default_handle(cudaStream_t stream) noexcept {
    return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}

namespace detail {

// The driver's functions. CUresult is an int to its callers, with the numbers of cudaError_t. The handles are the same.
struct driver_functions {
    int (*id)(cudaStream_t, unsigned long long*) = nullptr;
    int (*is_capturing)(cudaStream_t, cudaStreamCaptureStatus*) = nullptr;
    int (*exchange_mode)(cudaStreamCaptureMode*) = nullptr;
    int (*record)(cudaEvent_t, cudaStream_t) = nullptr;
    int (*is_reached)(cudaEvent_t) = nullptr;
    int (*wait)(cudaStream_t, cudaEvent_t, unsigned) = nullptr;
    int (*allocate)(unsigned long long*, std::size_t, cudaMemPool_t, cudaStream_t) = nullptr;
    int (*free)(unsigned long long, cudaStream_t) = nullptr;
    int (*primary_state)(int, unsigned*, int*) = nullptr;
    int (*context)(void**) = nullptr;
    int (*device)(int*) = nullptr;

    driver_functions() noexcept {
        find("cuStreamGetId", id);
        find("cuStreamIsCapturing", is_capturing);
        find("cuThreadExchangeStreamCaptureMode", exchange_mode);
        find("cuEventRecord", record);
        find("cuEventQuery", is_reached);
        find("cuStreamWaitEvent", wait);
        find("cuMemAllocFromPoolAsync", allocate);
        find("cuMemFreeAsync", free);
        find("cuDevicePrimaryCtxGetState", primary_state);
        find("cuCtxGetCurrent", context);
        find("cuCtxGetDevice", device);
    }

    // Looks up the function of that name, and once more if that fails. If the driver has none, `function` stays as it is; so it
    // does if the look-up fails, which is the answer. No error is left behind.
    template <class Function>
    static cudaError_t find(char const* name, Function& function) noexcept {
        cudaError_t error = cudaErrorUnknown;
        for (int tries = 0; tries != 2 && error != cudaSuccess; ++tries) {
            void* found = nullptr;
            cudaDriverEntryPointQueryResult result{};
            error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
            if (error != cudaSuccess)
                static_cast<void>(cudaGetLastError());
            else if (result == cudaDriverEntryPointSuccess)
                function = reinterpret_cast<Function>(found);
        }
        return error;
    }
};

inline detail::driver_functions const& driver() noexcept {
    static detail::driver_functions const found;
    return found;
}

// Whether the driver could not answer because there is no context, which the runtime makes. The numbers mean: not
// initialised, shut down, no context, context destroyed.
inline bool wants_context(int result) noexcept {
    return result == 3 || result == 4 || result == 201 || result == 709;
}

// Calls a driver function. Clang's function sanitizer requires the exact type, and CUresult is an enumeration.
template <class Function, class... Arguments>
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
int ask_driver(Function* function, Arguments... arguments) noexcept {
    return function(arguments...);
}

// Calls a driver function, or `runtime()` if there is none or it needs a context.
template <class Runtime, class Function, class... Arguments>
cudaError_t call_driver(Runtime const& runtime, Function* function, Arguments... arguments) noexcept {
    if (function)
        if (int const result = detail::ask_driver(function, arguments...);
            result == cudaSuccess || !detail::wants_context(result))
            return static_cast<cudaError_t>(result);
    cudaError_t const error = runtime();
    if (error != cudaSuccess && error != cudaErrorNotReady) // NotReady is an answer, which CUDA does not put on the record
        static_cast<void>(cudaGetLastError());
    return error;
}

// The function; null if it would take `stream` for another stream.
template <class Function>
Function* for_stream(cudaStream_t stream, Function* function) noexcept {
    return stream ? function : nullptr;
}

// cudaStreamGetId.
inline cudaError_t query_id(cudaStream_t stream, unsigned long long* id) noexcept {
    return detail::call_driver([&] { return cudaStreamGetId(stream, id); },
                       detail::for_stream(stream, detail::driver().id), stream, id);
}

// cudaStreamIsCapturing.
inline cudaError_t query_capture(cudaStream_t stream, cudaStreamCaptureStatus* status) noexcept {
    return detail::call_driver([&] { return cudaStreamIsCapturing(stream, status); },
                       detail::for_stream(stream, detail::driver().is_capturing), stream, status);
}

// cudaThreadExchangeStreamCaptureMode.
inline cudaError_t exchange_capture_mode(cudaStreamCaptureMode* mode) noexcept {
    return detail::call_driver([&] { return cudaThreadExchangeStreamCaptureMode(mode); },
                       detail::driver().exchange_mode, mode);
}

// cudaEventRecord.
inline cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) noexcept {
    return detail::call_driver([&] { return cudaEventRecord(event, stream); },
                       detail::for_stream(stream, detail::driver().record), event, stream);
}

// cudaEventQuery.
inline cudaError_t query_event(cudaEvent_t event) noexcept {
    return detail::call_driver([&] { return cudaEventQuery(event); }, detail::driver().is_reached, event);
}

// cudaStreamWaitEvent.
inline cudaError_t make_stream_wait(cudaStream_t stream, cudaEvent_t event) noexcept {
    return detail::call_driver([&] { return cudaStreamWaitEvent(stream, event, 0); },
                       detail::for_stream(stream, detail::driver().wait), stream, event, 0u);
}

// cudaMallocFromPoolAsync.
inline cudaError_t allocate_async(void** block, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) noexcept {
    unsigned long long address = 0;
    cudaError_t const error = detail::call_driver(
        [&] {
            void* at = nullptr;
            cudaError_t const answer = cudaMallocFromPoolAsync(&at, bytes, pool, stream);
            address = reinterpret_cast<std::uintptr_t>(at);
            return answer;
        },
        detail::for_stream(stream, detail::driver().allocate), &address, bytes, pool, stream);
    *block = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
    return error;
}

// cudaFreeAsync.
inline cudaError_t free_async(void* block, cudaStream_t stream) noexcept {
    unsigned long long const address = reinterpret_cast<std::uintptr_t>(block);
    return detail::call_driver([&] { return cudaFreeAsync(block, stream); },
                       detail::for_stream(stream, detail::driver().free), address, stream);
}

// cudaGetDevice: 17 instead of 45 ns.
inline cudaError_t query_device(int* device) noexcept {
    return detail::call_driver([&] { return cudaGetDevice(device); }, detail::driver().device, device);
}

// The context in which this thread's CUDA calls are made; null if it has none yet, or if the driver does not say. 12 ns.
inline void* current_context() noexcept {
    void* context = nullptr;
    if (detail::driver().context && detail::ask_driver(detail::driver().context, &context) != cudaSuccess)
        return nullptr;
    return context;
}

// Whether CUDA is ready on device number `device`; true also if the driver does not say. The runtime has no function for
// this.
inline bool is_ready(int device) noexcept {
    unsigned flags = 0;
    int active = 1;
    if (detail::driver().primary_state &&
        detail::ask_driver(detail::driver().primary_state, device, &flags, &active) != cudaSuccess)
        return true;
    return active != 0;
}

} // namespace detail
} // namespace runtime
} // namespace v0
} // namespace weir
