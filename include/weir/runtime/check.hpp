// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a failed CUDA call become an exception?
//
// 'check_cuda' turns a cudaError_t into a cuda_error. That names the call, the error and, if a user can do something about it,
// what to do. 'check_cuda' also takes the error off CUDA's per-thread record, so that nobody finds it there again with
// cudaGetLastError.
//
// invariant: 'check_cuda' returns only on success. No function here leaves its own error on the record, or takes an error of
//            another code off it.
// order:     a sticky error (a kernel that faulted) stays sticky: CUDA returns it from every later call.
// cost:      one compare on success.
// not for:   cudaErrorMemoryAllocation where a null is the answer: see 'out_of_room'.

#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>

#if CUDART_VERSION < 12080
#error "weir: needs the CUDA toolkit 12.8 or later, whose runtime tells a stream's device; update it"
#endif

namespace weir {
inline namespace v0 {
namespace runtime {

/// What a user can do about `error`, as a clause; "" if CUDA's name for it says all.
inline char const* advice_for(cudaError_t error) noexcept {
    switch (error) {
    case cudaErrorNoDevice:
        return "no GPU is visible; check 'nvidia-smi' and CUDA_VISIBLE_DEVICES, or use a host pool";
    case cudaErrorInsufficientDriver:
        return "there is no NVIDIA driver, or it is older than the CUDA runtime that this program was built with; "
               "install or update the driver, or build with an older toolkit";
    case cudaErrorInvalidDevice:
        return "there is no device of that number; cudaGetDeviceCount says how many there are";
    case cudaErrorInvalidResourceHandle:
        return "the stream or event was destroyed, or belongs to another device; use one that lives, of the memory's device";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
        return "the call is not allowed while a graph is captured; make it before the capture begins";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
        return "an earlier kernel faulted, and the process must be restarted; compute-sanitizer names the kernel, but sees no "
               "borders between the blocks of a pool: run it there with a pool of <weir/interop/nvtx.hpp>, or with a "
               "driver_pool, whose blocks it knows (examples/checking.md says how)";
    default:
        return "";
    }
}

namespace detail {
// Takes `error` off CUDA's per-thread record, if the call that failed left it there. A different error stays: it is somebody
// else's, since some of weir's calls leave nothing there (runtime/driver_calls.hpp).
inline void take_off_record(cudaError_t error) noexcept {
    if (cudaPeekAtLastError() == error)
        static_cast<void>(cudaGetLastError());
}

[[noreturn, gnu::noinline]] inline void fail_with(char const* advice, cudaError_t error, char const* call) {
    detail::take_off_record(error);
    throw cuda_error(call, cudaGetErrorName(error), static_cast<int>(error), advice);
}
[[noreturn, gnu::noinline]] inline void fail(cudaError_t error, char const* call, char const* if_invalid,
                                             char const* if_unsupported) {
    detail::fail_with(error == cudaErrorInvalidValue   ? if_invalid
                      : error == cudaErrorNotSupported ? if_unsupported
                                                       : advice_for(error),
                      error, call);
}
} // namespace detail

} // namespace runtime

/// Throws cuda_error unless `error` is cudaSuccess. `call`: a literal with the function's name. `if_invalid`: what to do if
/// CUDA only says that some argument is invalid; `if_unsupported`: if it says that the device has no such thing. Any thread.
inline void check_cuda(cudaError_t error, char const* call, char const* if_invalid = "", char const* if_unsupported = "") {
    if (error != cudaSuccess)
        runtime::detail::fail(error, call, if_invalid, if_unsupported);
}

/// The earlier name of check_cuda.
[[deprecated("weir: 'check' is called 'check_cuda' now")]] inline void check(cudaError_t error, char const* call,
                                                                             char const* if_invalid = "",
                                                                             char const* if_unsupported = "") {
    check_cuda(error, call, if_invalid, if_unsupported);
}

namespace runtime {

/// Whether the call succeeded; for calls whose failure cannot be reported, as in destructors. It leaves no failure on CUDA's
/// per-thread record, where it would be taken for somebody else's. Any thread.
inline bool succeeded(cudaError_t error) noexcept {
    if (error != cudaSuccess)
        detail::take_off_record(error);
    return error == cudaSuccess;
}

/// True if the call found no memory, false if it succeeded; throws cuda_error for any other failure. As 'check_cuda' otherwise.
inline bool out_of_room(cudaError_t error, char const* call, char const* if_unsupported = "") {
    if (error == cudaErrorMemoryAllocation) {
        detail::take_off_record(error);
        return true;
    }
    check_cuda(error, call, "", if_unsupported);
    return false;
}

} // namespace runtime
} // namespace v0
} // namespace weir
