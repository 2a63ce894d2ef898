// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one tell CUDA where managed memory is needed, how it is used, and when its contents are no longer needed?
//
// Pages of managed memory migrate to whoever touches them, and each migration costs a fault. A prefetch moves them before
// they are touched. An advice says how they will be used. A discard says that nobody will read what is in them, so that the
// contents need not be moved at all. CUDA 13 changed the signatures of CUDA's calls for this; these functions have the same
// signatures with every version.
//
//     weir::discard_and_prefetch(stream, p, bytes, weir::memory_location::device(0)); // about to be overwritten there
//     weir::prefetch(stream, p, bytes, weir::memory_location::host());                // about to be read by the host
//     weir::advise(table, bytes, weir::memory_advice::read_mostly());                 // a copy for each device
//
// invariant: a prefetch or an advice changes no byte. Where memory lies never changes what a program computes.
// order:     'prefetch' and 'discard' are work of their stream; 'advise' holds when it returns.
// cost:      some microseconds a call. The pages move at the speed of the bus.
// not for:   memory that is not managed. Nor for habitual use of more managed memory than the device has free.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/memory_location.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// How a stretch of managed memory will be used. Each advice lasts until its opposite is given. Trivially copyable.
class memory_advice {
public:
    /// Several devices read the memory, and it is seldom written. Each reader gets a copy of its own, which a write takes
    /// away.
    static memory_advice read_mostly() noexcept { return {cudaMemAdviseSetReadMostly, memory_location::host()}; }
    static memory_advice not_read_mostly() noexcept { return {cudaMemAdviseUnsetReadMostly, memory_location::host()}; }
    /// The pages stay at `place` if others can reach them from afar. If they cannot, the pages move to them, and later come
    /// back.
    static memory_advice preferred_location(memory_location place) noexcept {
        return {cudaMemAdviseSetPreferredLocation, place};
    }
    static memory_advice no_preferred_location() noexcept {
        return {cudaMemAdviseUnsetPreferredLocation, memory_location::host()};
    }
    /// That device, or the host, uses the pages where they are. They stay mapped for it, so it does not fault.
    static memory_advice accessed_by(memory_location place) noexcept { return {cudaMemAdviseSetAccessedBy, place}; }
    static memory_advice not_accessed_by(memory_location place) noexcept { return {cudaMemAdviseUnsetAccessedBy, place}; }

    /// The advice and its place, for CUDA's calls. The place means nothing if the advice needs none.
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

/// Moves the pages of the `bytes` bytes at `p` to a device, the host or one of its NUMA nodes, in the order of `stream`:
/// after what is enqueued on it. Zero bytes: nothing happens. Does not wait, and breaks no capture. Any thread. Throws
/// usage_error if `stream` is the host or is being captured. Throws cuda_error, also if the memory is not managed, or if the
/// device cannot take managed memory in while others use it.
inline void prefetch(stream_ref stream, void const* p, std::size_t bytes, memory_location to) {
    if (bytes == 0)
        return;
    detail::require_migration(stream);
    runtime::capture_mode_scope const relaxed;
#if CUDART_VERSION >= 13000
    check_cuda(cudaMemPrefetchAsync(p, bytes, to.get(), 0, stream.get()), "cudaMemPrefetchAsync", detail::if_invalid);
#else
    check_cuda(cudaMemPrefetchAsync_v2(p, bytes, to.get(), 0, stream.get()), "cudaMemPrefetchAsync", detail::if_invalid);
#endif
}

/// Says how the `bytes` bytes at `p`, and the rest of their pages, will be used. Zero bytes: nothing happens. Breaks no
/// capture. Any thread. Throws cuda_error, also if the memory is not managed.
inline void advise(void const* p, std::size_t bytes, memory_advice advice) {
    if (bytes == 0)
        return;
    runtime::capture_mode_scope const relaxed;
#if CUDART_VERSION >= 13000
    check_cuda(cudaMemAdvise(p, bytes, advice.get(), advice.place().get()), "cudaMemAdvise", detail::if_invalid);
#else
    check_cuda(cudaMemAdvise_v2(p, bytes, advice.get(), advice.place().get()), "cudaMemAdvise", detail::if_invalid);
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

/// Says that the contents of the `bytes` bytes at `p` are no longer needed, in the order of `stream`: after what is enqueued
/// on it. What is read there before it is written again may be anything. Prefetch the bytes before they are written, or use
/// 'discard_and_prefetch'. CUDA says that a write alone makes them count again, but on an H200 (driver 580.159) a page that
/// was written without a prefetch came back without what was written. No other work may use the bytes meanwhile. Zero bytes:
/// nothing happens. Does not wait, and breaks no capture. Any thread. Throws usage_error if `stream` is the host or the
/// legacy default stream, or is being captured. Throws cuda_error, also if the memory is not managed. Since CUDA 13.
inline void discard(stream_ref stream, void* p, std::size_t bytes) {
    if (bytes == 0)
        return;
    detail::require_discard(stream);
    runtime::capture_mode_scope const relaxed;
    check_cuda(cudaMemDiscardBatchAsync(&p, &bytes, 1, 0, stream.get()), "cudaMemDiscardBatchAsync", detail::if_invalid);
}

/// 'discard' and 'prefetch' in one, which moves no contents: for bytes that will be written at `to` next. Since CUDA 13.
inline void discard_and_prefetch(stream_ref stream, void* p, std::size_t bytes, memory_location to) {
    if (bytes == 0)
        return;
    detail::require_discard(stream);
    cudaMemLocation place = to.get();
    std::size_t first = 0;
    runtime::capture_mode_scope const relaxed;
    check_cuda(cudaMemDiscardAndPrefetchBatchAsync(&p, &bytes, 1, &place, &first, 1, 0, stream.get()),
          "cudaMemDiscardAndPrefetchBatchAsync", detail::if_invalid);
}

#endif

} // namespace runtime
} // namespace v0
} // namespace weir
