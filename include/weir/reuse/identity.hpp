// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Is this the stream that had this handle before, or another one?
//
// A handle does not identify a stream. CUDA hands the same cudaStream_t out again as soon as a stream is destroyed, while the
// old stream's kernels still run, and it does so on another device as well (50 times of 50 on two H200). Memory freed on the
// old stream must not be taken for memory freed on the new one. There are two policies:
//
//   checked    asks CUDA at each allocation whether the stream is captured, and for its id (22 ns each). Streams may come and
//              go as they like.
//   promised   asks nothing. The caller promises three things instead. A stream on which memory was freed into a pool is not
//              destroyed before the pool is settled or destroyed; a stream that only allocated may end at any time. Nothing is
//              allocated or freed on a stream while it is captured. Every stream belongs to the pool's device. Where no block
//              is at hand, CUDA is asked about the last two all the same.
//
// Under 'promised' a stream that only allocated may end at any time. So what others still use never enters its set: if it has
// to wait for another stream's bytes, it takes the block that it asked for, and no stock, that is, no further bytes for later
// blocks (stream_exchange.hpp).
//
// The handles of the default streams (legacy, per thread) are fixed values. Which stream they name depends on the thread and
// the current device, so under both policies the context tells them apart, without a question for their id
// (default_streams.hpp).
//
// invariant: under 'checked' no two streams that ever existed are taken for the same one.
// cost:      checked: two questions to CUDA for an allocation and one for a free; one more for a free on a machine with
//            several devices, where streams of different devices may have the same handle. promised: none where a block is at
//            hand. Default streams: see caller.hpp.
// not for:   streams of other processes.

#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace identity {

/// Asks CUDA.
struct checked {
    static constexpr bool asks = true;

    /// A number that no other stream of the process ever has. Throws cuda_error.
    static unsigned long long id(stream_ref stream) { return runtime::id_of(stream); }
    /// Throws usage_error while `stream` is captured; cuda_error.
    static void require_no_capture(stream_ref stream) { weir::runtime::require_no_capture(stream); }
};

/// Believes the caller.
struct promised {
    static constexpr bool asks = false;

    static unsigned long long id(stream_ref) noexcept { return 0; }
    static void require_no_capture(stream_ref) noexcept {}
};

} // namespace identity
} // namespace v0
} // namespace weir
