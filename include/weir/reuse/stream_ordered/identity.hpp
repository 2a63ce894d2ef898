// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Is this the stream that bore the handle before?
//
// A handle is no identity: CUDA hands the same cudaStream_t out again as soon as a stream is destroyed, while
// the old stream's kernels still run, and on another device as well (50 times of 50 on two H200). Memory freed on the
// old stream must not be taken for memory freed on the new one. Two policies answer:
//
//   checked    asks CUDA at each allocation whether the stream is captured, and for its id (22 ns each); streams
//              may come and go as they like.
//   promised   asks nothing. The caller promises three things. A stream on which memory was freed into a pool is not
//              destroyed before the pool is settled or destroyed; one that only allocated may be, at any time. Nothing
//              is allocated or freed on a stream while it is captured. Every stream is of the pool's device. The last
//              two are asked all the same where no block is at hand.
//
// So under 'promised' a stream's set holds nothing that others still use, unless the stream itself freed it: of another
// stream's bytes for which it had to wait, it takes the block that it asked for and no stock (stream_exchange.hpp).
//
// The default streams (legacy, per thread) are values, not handles: what they name depends on the thread and the
// current device, so both policies ask for their id.
//
// invariant: two streams that ever existed never compare equal under 'checked'.
// cost:      checked: two CUDA queries an allocation, one a free, and one more a free on a machine of several devices, whose
//            streams bear the same handles; promised: none where a block is at hand.
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

    /// What tells this stream from all others that ever were. Throws cuda_error.
    static unsigned long long id(stream_ref stream) { return runtime::id_of(stream); }
    /// Throws usage_error while `stream` is captured, cuda_error.
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
