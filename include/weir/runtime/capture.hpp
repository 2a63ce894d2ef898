// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Is a graph being captured, and how do other calls leave the capture alone?
//
// While a stream is captured into a graph, calls on it are recorded and not run. A query or a synchronise of it breaks the
// capture. So does the mere question for its id or its device: ask 'is_capturing' first. A capture in CUDA's global mode, the
// default, is also broken by calls that have nothing to do with it, from any thread: cudaMalloc, cudaFree, cudaEventQuery,
// cudaEventSynchronize, cudaMallocAsync on another stream, and their like. For those there is a scope object. It tells CUDA
// that the next calls of this thread touch no captured stream.
//
// invariant: the scope leaves the thread's capture mode as it found it.
// cost:      22 ns for a question (25 to 36 for a default stream). A scope takes two such calls.
// not for:   allocating in a graph. Nor for cudaDeviceSynchronize, which breaks every capture on the device, with or without
//            a scope.

#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// Whether `stream` is being captured into a graph; false for the host. Never blocks. Throws cuda_error, except for
/// cudaErrorStreamCaptureImplicit, which counts as a yes: CUDA answers so for the legacy stream while a blocking stream is
/// captured.
inline bool is_capturing(stream_ref stream) {
    if (stream.is_host())
        return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t const error = detail::query_capture(stream.get(), &status);
    if (error == cudaErrorStreamCaptureImplicit)
        return true;
    check_cuda(error, "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
}

/// What is known of a stream where the question itself may fail. Only in the first case may anything be recorded on it.
enum class capture_state {
    none,     ///< no graph is captured there
    active,   ///< one is, and may use, at each launch, what is freed there
    broken,   ///< one was: the capture has broken, and has not ended
    hindered, ///< none uses what is freed, but calls fail: the legacy stream beside a capture, or in a host function (below)
    unknown,  ///< CUDA did not answer, so a graph may be captured there
};

/// The state of `stream`; that of the host is 'none'. If CUDA fails it is asked once more. A host function is told nothing of
/// any stream. It runs when the work before it is over, and so in no order with a capture: what it frees is no graph's. Never
/// blocks.
inline capture_state capture_state_of(stream_ref stream) noexcept {
    if (stream.is_host())
        return capture_state::none;
    for (int tries = 0; tries != 2; ++tries) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        cudaError_t const error = detail::query_capture(stream.get(), &status);
        if (error == cudaSuccess)
            return status == cudaStreamCaptureStatusNone     ? capture_state::none
                   : status == cudaStreamCaptureStatusActive ? capture_state::active
                                                             : capture_state::broken;
        if (error == cudaErrorStreamCaptureImplicit || error == cudaErrorNotPermitted)
            return capture_state::hindered;
        if (error == cudaErrorInvalidResourceHandle && tries != 0)
            return capture_state::none; // there is no such stream any more
    }
    return runtime::is_legacy(stream) ? capture_state::hindered : capture_state::unknown;
}

/// Whether a graph may use what is freed on a stream of that state, so that nobody else may have it. A broken one counts, too:
/// it may have been captured into a graph that the program has (cudaStreamBeginCaptureToGraph).
constexpr bool may_be_captured(capture_state now) noexcept {
    return now != capture_state::none && now != capture_state::hindered;
}

/// A capture under way.
struct capture {
    unsigned long long id = 0; ///< tells this capture from all others of the process; 0: there is none
    cudaGraph_t graph = nullptr;
};

/// The capture of `stream`; none if there is none or it is broken, for the host, and for the legacy stream, which is never
/// captured itself. Never blocks. Throws cuda_error.
inline capture capture_of(stream_ref stream) {
    if (runtime::is_legacy(stream) || !is_capturing(stream))
        return {};
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    capture now;
    check_cuda(cudaStreamGetCaptureInfo(stream.get(), &status, &now.id, &now.graph), "cudaStreamGetCaptureInfo");
    return status == cudaStreamCaptureStatusActive ? now : capture{};
}

/// The same; none also if CUDA fails twice.
inline capture capture_if_known(stream_ref stream) noexcept {
    capture found;
    base::try_twice([&] { return found = runtime::capture_of(stream), true; });
    return found;
}

/// A refusal of a captured stream. Who throws it does not know the pool's name.
class capture_refusal : public usage_error {
public:
    using usage_error::usage_error;
};

/// Throws again what is being handled. A refusal of a captured stream becomes a usage_error with the pool's name.
[[noreturn, gnu::noinline, gnu::cold]] inline void throw_naming(text const& name) {
    try {
        throw;
    } catch (capture_refusal const& refused) {
        throw usage_error("weir: pool '" + name + "': " + (refused.what() + sizeof "weir: " - 1));
    } catch (...) { // the thread sanitizer counts no frame as left whose handlers do not fit
        throw;
    }
}

/// Returns call(). If that refuses a captured stream, throws usage_error with the name of `pool` in the sentence.
template <class Pool, class Call>
[[gnu::always_inline]] inline auto naming(Pool const& pool, Call const& call) {
    try {
        return call();
    } catch (...) { // all: a handler for one kind costs each allocation 30 instructions
        throw_naming(pool.name());
    }
}

/// Throws capture_refusal, a usage_error, while `stream` is captured. Call this before any other question about a stream that
/// may be captured: even cudaStreamGetId and cudaStreamGetDevice fail on a captured stream, and break its capture (seen on
/// CUDA 13).
inline void require_no_capture(stream_ref stream) {
    if (is_capturing(stream))
        throw capture_refusal("weir: memory of this pool cannot be allocated or marked on a stream that is being captured "
                              "into a graph; do it before the capture begins, or allocate from a weir::graph_memory of the "
                              "pool");
}

/// While it lives, CUDA calls of this thread do not fail because another stream is captured, and do not break that capture.
class capture_mode_scope {
public:
    /// Never blocks. Throws cuda_error.
    capture_mode_scope() {
        check_cuda(detail::exchange_capture_mode(&mode_), "cudaThreadExchangeStreamCaptureMode");
    }
    capture_mode_scope(capture_mode_scope const&) = delete;
    capture_mode_scope& operator=(capture_mode_scope const&) = delete;
    ~capture_mode_scope() {
        if (!succeeded(detail::exchange_capture_mode(&mode_))) // the mode outlives this call: once more, and not by try_twice,
            static_cast<void>(succeeded(detail::exchange_capture_mode(&mode_))); // which takes more of a hot path
    }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

} // namespace runtime
} // namespace v0
} // namespace weir
