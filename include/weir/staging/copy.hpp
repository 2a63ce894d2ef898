// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one piece of memory get to the device and back at full speed, if it lies in ordinary host memory?
//
// CUDA copies at the link's speed only from and to page-locked memory. For other host memory it makes the calling thread wait,
// or copies slowly. These functions go through a pinned_ring: the host copies one chunk while the link carries the one before.
//
//     staging::copy_threads helpers(8);
//     staging::pinned_ring ring(pool, staging::pinned_ring_options{}.threads(helpers));
//     staging::copy_to_device_async(ring, stream, x.data(), numbers.data(), bytes);   // `numbers` may change at once
//     auto copy = staging::copy_to_host_async(ring, stream, numbers.data(), x.data(), bytes);
//     copy.wait();                                                                    // now `numbers` holds the bytes
//
// Host memory that is page-locked already is copied directly, as by cudaMemcpyAsync.
//
// order:     a copy runs after what is on the stream, and before what is enqueued later.
// cost:      that of the slower one of the host's copying and the link, and some microseconds. Steady state: no allocation.
// not for:   many small pieces: see copy_batch.hpp. Graphs: captured streams are refused.

#include <cstddef>
#include <utility>
#include <weir/runtime/stream.hpp>
#include <weir/staging/pending_copy.hpp>
#include <weir/staging/pinned_ring.hpp>
#include <weir/staging/ring/piece_cursor.hpp>
#include <weir/staging/ring/staged_copy.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// Enqueues a copy of `bytes` bytes from `from`, host memory, to `to`, memory of the ring's device. Blocks until the host has
/// read the source, which may change then, and while the ring is full (pinned_ring_options::on_full). A source in pinned memory
/// is not read by the host: it must not change until the stream has made the copy. A default stream is that of the ring's
/// device. Zero bytes: nothing happens. Any thread; breaks no capture.
///
/// Throws usage_error, before anything is enqueued, for a null address, 'on_host', and a stream that is captured or belongs to
/// another device; out_of_memory if a full ring refuses. Throws cuda_error: the stream may have copied a part of the source, or
/// may still do so; the source is not needed for it; the ring stays usable.
inline void copy_to_device_async(pinned_ring& ring, stream_ref stream, void* to, void const* from, std::size_t bytes) {
    piece const whole{to, from, bytes};
    detail::copy_to_device(ring, stream, &whole, 1);
}

/// Enqueues a copy of `bytes` bytes from `from`, memory of the ring's device, to `to`, host memory. What it returns does the
/// rest when it is waited for. Does not wait for the copy, unless it is larger than the ring, or the ring is full. Everything
/// else is as for 'copy_to_device_async'; if it throws, the host writes the target no more.
inline pending_copy copy_to_host_async(pinned_ring& ring, stream_ref stream, void* to, void const* from, std::size_t bytes) {
    piece const whole{to, from, bytes};
    return detail::copy_to_host(ring, stream, &whole, 1, detail::pieces_stay::in_the_call, false);
}

/// The same, and blocks until the target holds the bytes.
inline void copy_to_host_sync(pinned_ring& ring, stream_ref stream, void* to, void const* from, std::size_t bytes) {
    piece const whole{to, from, bytes};
    detail::copy_to_host(ring, stream, &whole, 1, detail::pieces_stay::in_the_call, true).wait();
}

} // namespace staging
} // namespace v0
} // namespace weir
