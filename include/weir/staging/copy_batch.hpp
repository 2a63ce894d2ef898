// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do many small pieces get to the device and back?
//
// A call of cudaMemcpyAsync for each of 100,000 pieces of 4 KiB takes longer than carrying the bytes. These functions gather
// the pieces in the slots of a pinned_ring. What lies side by side on the device leaves as one copy a chunk. What is
// scattered there leaves as a list of copies, in one call where CUDA has it (runtime/batch_copy.hpp).
//
// order:     the batch runs after what is on the stream, and before what is enqueued later. Its pieces are in no order among
//            themselves, and must not overlap.
// cost:      a chunk as in copy.hpp, and some nanoseconds a piece, if the pieces lie side by side on the device.
// not for:   one large piece: see copy.hpp.

#include <cstddef>
#include <weir/runtime/stream.hpp>
#include <weir/staging/pending_copy.hpp>
#include <weir/staging/piece.hpp>
#include <weir/staging/pinned_ring.hpp>
#include <weir/staging/ring/piece_cursor.hpp>
#include <weir/staging/ring/staged_copy.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// Enqueues `count` copies from host memory to memory of the ring's device. The host memory of all is of one kind, ordinary
/// or page-locked; the first one is looked at. Pieces without bytes are skipped. The list may go after the call. Everything
/// else is as for 'copy_to_device_async'.
inline void copy_batch_to_device_async(pinned_ring& ring, stream_ref stream, piece const* pieces, std::size_t count) {
    detail::copy_to_device(ring, stream, pieces, count);
}

/// Enqueues `count` copies from memory of the ring's device to host memory, as 'copy_to_host_async' does. The list of pieces
/// stays unchanged until what is returned has been waited for, or has ended.
inline pending_copy copy_batch_to_host_async(pinned_ring& ring, stream_ref stream, piece const* pieces, std::size_t count) {
    return detail::copy_to_host(ring, stream, pieces, count, detail::pieces_stay::until_waited_for, false);
}

/// The same, and blocks until the targets hold the bytes.
inline void copy_batch_to_host_sync(pinned_ring& ring, stream_ref stream, piece const* pieces, std::size_t count) {
    staging::copy_batch_to_host_async(ring, stream, pieces, count).wait();
}

} // namespace staging
} // namespace v0
} // namespace weir
