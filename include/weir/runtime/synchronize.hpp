// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host wait for a stream, and break nobody's capture?
//
// cudaStreamSynchronize fails while any other thread's stream is captured in global mode, and breaks that capture, however
// little the two have to do with each other. In a thread of relaxed capture mode it does neither.
//
// order:    what was enqueued on the stream before the call is over after it.
// cost:     three driver calls, and the wait.
// not for:  all work on a device: see device_wait.hpp. One event: see event.hpp.

#include <cuda_runtime_api.h>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Blocks the calling thread until all work on `stream` is done; on the host there is nothing to wait for. Any thread.
/// Throws cuda_error, also where `stream` itself is captured, which breaks its capture.
inline void synchronize(stream_ref stream) {
    if (stream.is_host())
        return;
    capture_mode_guard const relaxed;
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

} // namespace v0
} // namespace weir
