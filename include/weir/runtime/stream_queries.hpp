// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is CUDA asked about a stream on every allocation without paying for the question twice?
//
// The runtime's cudaStreamGetId and cudaStreamIsCapturing take about 63 ns each, most of it the runtime's own; the
// driver's functions behind them take 22. They are looked up once, through the runtime, so there is nothing more to
// link. A default stream's handle means another stream in each function's variant, and a thread without a context
// gets one from the runtime only: in both cases, and where the driver has no such function, the runtime is asked.
//
// invariant: the answers are the runtime's.
// order:     a captured stream may not be asked for its id: CUDA refuses, and breaks the capture.
// cost:      22 ns a question; the first one in a process looks the functions up.
// not for:   calls off the usual path: they go through the runtime, whose errors say more.

#include <cstdint>
#include <cuda_runtime_api.h>

namespace weir {
inline namespace v0 {

/// Whether `stream` is one of CUDA's default streams (0, cudaStreamLegacy, cudaStreamPerThread), whose handle is a
/// fixed value.
inline bool is_default_handle(cudaStream_t stream) noexcept {
    return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}

namespace detail {

// The driver's functions; CUresult is an int to its callers, and its numbers are cudaError_t's where it matters here.
struct stream_queries {
    int (*id)(cudaStream_t, unsigned long long*) = nullptr;
    int (*is_capturing)(cudaStream_t, cudaStreamCaptureStatus*) = nullptr;
    int (*exchange_mode)(cudaStreamCaptureMode*) = nullptr;

    stream_queries() noexcept {
        find("cuStreamGetId", id);
        find("cuStreamIsCapturing", is_capturing);
        find("cuThreadExchangeStreamCaptureMode", exchange_mode);
    }

    // Leaves `function` as it is, and no error behind, where the driver has none of that name.
    template <class Function>
    static void find(char const* name, Function& function) noexcept {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result{};
        cudaError_t const error =
            cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
        if (error != cudaSuccess)
            static_cast<void>(cudaGetLastError());
        else if (result == cudaDriverEntryPointSuccess)
            function = reinterpret_cast<Function>(found);
    }
};

inline stream_queries const& queries() noexcept {
    static stream_queries const found;
    return found;
}

// Calls one of them. Clang's function sanitizer compares types to the letter, and CUresult is an enumeration.
template <class Function, class... Arguments>
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
int ask_driver(Function* function, Arguments... arguments) noexcept {
    return function(arguments...);
}

// Whether the driver could not answer for want of a context, which the runtime makes: not initialised, shut down, no
// context, context destroyed.
inline bool wants_context(int result) noexcept {
    return result == 3 || result == 4 || result == 201 || result == 709;
}

} // namespace detail

/// cudaStreamGetId.
inline cudaError_t query_id(cudaStream_t stream, unsigned long long* id) noexcept {
    auto const ask = detail::queries().id;
    if (ask && !is_default_handle(stream))
        if (int const result = detail::ask_driver(ask, stream, id); !detail::wants_context(result))
            return static_cast<cudaError_t>(result);
    return cudaStreamGetId(stream, id);
}

/// cudaStreamIsCapturing.
inline cudaError_t query_capture(cudaStream_t stream, cudaStreamCaptureStatus* status) noexcept {
    auto const ask = detail::queries().is_capturing;
    if (ask && !is_default_handle(stream))
        if (int const result = detail::ask_driver(ask, stream, status); !detail::wants_context(result))
            return static_cast<cudaError_t>(result);
    return cudaStreamIsCapturing(stream, status);
}

/// cudaThreadExchangeStreamCaptureMode.
inline cudaError_t exchange_capture_mode(cudaStreamCaptureMode* mode) noexcept {
    if (auto const exchange = detail::queries().exchange_mode)
        if (int const result = detail::ask_driver(exchange, mode); !detail::wants_context(result))
            return static_cast<cudaError_t>(result);
    return cudaThreadExchangeStreamCaptureMode(mode);
}

} // namespace v0
} // namespace weir
