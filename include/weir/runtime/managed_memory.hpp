// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one tell CUDA where managed memory is needed, how it is used, and when its contents are not needed any more?
//
// Pages of managed memory migrate to whoever touches them, which costs a fault each. A prefetch moves them before; an
// advice says how they will be used; a discard says that nobody will read what is in them, so that it is not moved at
// all. CUDA's calls for it changed their signatures with CUDA 13; these do not.
//
//     weir::discard_and_prefetch(stream, p, bytes, weir::memory_location::device(0)); // about to be overwritten there
//     weir::prefetch(stream, p, bytes, weir::memory_location::host());                // about to be read by the host
//     weir::advise(table, bytes, weir::memory_advice::read_mostly());                 // a copy for each device
//
// invariant: a prefetch or an advice changes no byte, and where memory is never changes what a program computes.
// order:     'prefetch' and 'discard' are work of their stream; 'advise' holds when it returns.
// cost:      some microseconds a call; the pages move at the speed of the bus.
// not for:   memory that is not managed; more managed memory than the device has free, as a habit.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/memory_location.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// How a stretch of managed memory will be used. Each lasts until its opposite is said. Trivially copyable.
class memory_advice {
public:
    /// Read by several devices and seldom written: each reader gets a copy of its own, which a write takes away.
    static memory_advice read_mostly() noexcept { return {cudaMemAdviseSetReadMostly, memory_location::host()}; }
    static memory_advice not_read_mostly() noexcept { return {cudaMemAdviseUnsetReadMostly, memory_location::host()}; }
    /// The pages stay there where others can reach them from afar, and come back where they cannot.
    static memory_advice preferred_location(memory_location place) noexcept {
        return {cudaMemAdviseSetPreferredLocation, place};
    }
    static memory_advice no_preferred_location() noexcept {
        return {cudaMemAdviseUnsetPreferredLocation, memory_location::host()};
    }
    /// That device, or the host, uses the pages where they are: they stay mapped for it, and it does not fault.
    static memory_advice accessed_by(memory_location place) noexcept { return {cudaMemAdviseSetAccessedBy, place}; }
    static memory_advice not_accessed_by(memory_location place) noexcept { return {cudaMemAdviseUnsetAccessedBy, place}; }

    /// For CUDA's calls. The place means nothing where the advice has none.
    cudaMemoryAdvise get() const noexcept { return advice_; }
    memory_location place() const noexcept { return place_; }

private:
    memory_advice(cudaMemoryAdvise advice, memory_location place) noexcept : advice_(advice), place_(place) {}

    cudaMemoryAdvise advice_;
    memory_location place_;
};

namespace detail {
inline constexpr char const* if_invalid =
    "the memory must be managed, and a place must be a device, the host or a NUMA node of it";

inline void require_migration(stream_ref stream) {
    if (stream.is_host())
        throw usage_error("weir: pages move in the order of a stream; name the one that uses the memory next, not the host");
    if (runtime::is_capturing(stream))
        throw usage_error("weir: managed memory can be neither prefetched nor discarded on a stream that is being captured "
                          "into a graph; do it before the capture begins, or between launches");
}
} // namespace detail

/// Moves the pages of the `bytes` bytes at `p` to a device, the host or a NUMA node of it, behind what is enqueued on
/// `stream`. Zero bytes: nothing. Does not wait, and breaks no capture. Any thread. Throws usage_error for the host as the
/// stream and for one that is being captured; cuda_error, also where the memory is not managed or the device cannot take
/// managed memory in while others use it.
inline void prefetch(stream_ref stream, void const* p, std::size_t bytes, memory_location to) {
    if (bytes == 0)
        return;
    detail::require_migration(stream);
    runtime::capture_mode_guard const relaxed;
#if CUDART_VERSION >= 13000
    check(cudaMemPrefetchAsync(p, bytes, to.get(), 0, stream.get()), "cudaMemPrefetchAsync", detail::if_invalid);
#else
    check(cudaMemPrefetchAsync_v2(p, bytes, to.get(), 0, stream.get()), "cudaMemPrefetchAsync", detail::if_invalid);
#endif
}

/// Says how the `bytes` bytes at `p`, and the rest of their pages, will be used. Zero bytes: nothing. Breaks no capture.
/// Any thread. Throws cuda_error, also where the memory is not managed.
inline void advise(void const* p, std::size_t bytes, memory_advice advice) {
    if (bytes == 0)
        return;
    runtime::capture_mode_guard const relaxed;
#if CUDART_VERSION >= 13000
    check(cudaMemAdvise(p, bytes, advice.get(), advice.place().get()), "cudaMemAdvise", detail::if_invalid);
#else
    check(cudaMemAdvise_v2(p, bytes, advice.get(), advice.place().get()), "cudaMemAdvise", detail::if_invalid);
#endif
}

#if CUDART_VERSION >= 13000 // older runtimes and drivers have no such call

namespace detail {
inline void require_discard(stream_ref stream) {
    require_migration(stream);
    if (runtime::is_legacy(stream))
        throw usage_error("weir: CUDA discards nothing on the legacy default stream; name a stream that was created, or "
                          "cudaStreamPerThread");
}
} // namespace detail

/// The contents of the `bytes` bytes at `p` are needed no more, behind what is enqueued on `stream`: what is read there
/// before it is written again may be anything. Prefetch them before they are written, or use 'discard_and_prefetch': CUDA says
/// that a write alone makes them count again, but on an H200 (driver 580.159) a page that was written without came back
/// without what was written. No other work may use them meanwhile. Zero bytes: nothing. Does not wait,
/// and breaks no capture. Any thread. Throws usage_error for the host as the stream, the legacy default stream, and a
/// stream that is being captured; cuda_error, also where the memory is not managed. Since CUDA 13.
inline void discard(stream_ref stream, void* p, std::size_t bytes) {
    if (bytes == 0)
        return;
    detail::require_discard(stream);
    runtime::capture_mode_guard const relaxed;
    check(cudaMemDiscardBatchAsync(&p, &bytes, 1, 0, stream.get()), "cudaMemDiscardBatchAsync", detail::if_invalid);
}

/// 'discard' and 'prefetch' in one, which moves no contents: for bytes that are written at `to` next. Since CUDA 13.
inline void discard_and_prefetch(stream_ref stream, void* p, std::size_t bytes, memory_location to) {
    if (bytes == 0)
        return;
    detail::require_discard(stream);
    cudaMemLocation place = to.get();
    std::size_t first = 0;
    runtime::capture_mode_guard const relaxed;
    check(cudaMemDiscardAndPrefetchBatchAsync(&p, &bytes, 1, &place, &first, 1, 0, stream.get()),
          "cudaMemDiscardAndPrefetchBatchAsync", detail::if_invalid);
}

#endif

} // namespace v0
} // namespace weir
