// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which stream uses a block, if its end is asked for later?
//
// A caller says once that a stream uses a block, before or after the launches. The free asks then where that stream ends. Until
// then its handle may have come to name another stream, so the id is kept with it. A thread's own default stream has a name in
// that thread alone; another thread asks the legacy stream in its place, which waits for it.
// 'used_on(p, cudaStreamPerThread)' marks the calling thread's stream; where another thread frees the block, the free waits for
// all blocking streams of the device. If a marked stream is captured at the free, that is a free on a captured stream.
//
// invariant: a mark names one stream that ever existed, whatever its handle names by now.
// order:     the marked stream, and the thread whose default stream it is, must live until 'look' is called last: CUDA crashes
//            on the handle of a stream that is gone, unless another one bears it.
// cost:      three questions to CUDA for a mark, two for a look (runtime/capture.hpp).
// not for:   a use that is over: an event tells of that, and outlives the stream (order/second_uses.hpp).

#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// Throws usage_error while `stream` is captured: what such a stream does has no end that a free could wait for.
inline void require_end(stream_ref stream) {
    if (runtime::is_capturing(stream))
        throw usage_error("weir: 'used_on' cannot mark a stream that is being captured into a graph; keep the block until the "
                          "graph has run instead");
}

/// One thread at a time.
class stream_mark {
public:
    /// What a stream is when its end is asked for. Nothing is known of one whose handle another stream bears, nor of the legacy
    /// stream while a capture is in its way.
    enum class state { open, captured, unknown };
    struct view {
        state now;
        stream_ref stream; ///< which names it, or in another thread one that waits for it
        unsigned long long id;
    };

    /// Marks a stream of any device. Throws usage_error while it is captured, cuda_error.
    explicit stream_mark(stream_ref stream) : stream_mark(stream, 0, any_device) {
        require_end(stream);
        id_ = runtime::id_of(stream);
        device_ = runtime::device_of(stream);
    }
    /// Marks one that is being captured, whose id nobody may ask for, on the current device.
    static stream_mark of_captured(stream_ref stream) { return stream_mark(stream, 0, runtime::current_device()); }

    stream_ref stream() const noexcept { return stream_; }
    int device() const noexcept { return device_; }
    /// The device to make current before the handle is used; any_device where it does not matter.
    int place() const noexcept { return runtime::is_default_stream(stream_) ? device_ : any_device; }
    /// Whether both mark the same stream.
    bool is_as(stream_mark const& other) const noexcept {
        return id_ == other.id_ && (id_ != 0 || stream_ == other.stream_);
    }

    /// Looks for the stream, with its `place` current. Never blocks. Throws cuda_error.
    view look() const {
        if (runtime::is_capturing(stream_))
            return {runtime::is_legacy(stream_) ? state::unknown : state::captured, stream_, 0};
        unsigned long long const id = runtime::id_of(stream_);
        if (id == id_ || id_ == 0)
            return {state::open, stream_, id};
        if (!runtime::is_per_thread(stream_))
            return {state::unknown, stream_, 0};
        stream_ref const all = cudaStreamLegacy;
        if (runtime::is_capturing(all)) // perhaps of the thread whose stream it is
            return {state::captured, all, 0};
        return {state::open, all, runtime::id_of(all)};
    }

private:
    stream_mark(stream_ref stream, unsigned long long id, int device) noexcept : stream_(stream), device_(device), id_(id) {}

    stream_ref stream_;
    int device_;
    unsigned long long id_; // 0: not known
};

/// Adds a mark to those of a block, unless its stream is among them. Throws std::bad_alloc before any change.
inline void add_mark(base::growing_array<stream_mark>& marks, stream_mark const& fresh) {
    for (stream_mark const& each : marks)
        if (each.is_as(fresh))
            return;
    marks.push_back(fresh);
}

} // namespace order
} // namespace v0
} // namespace weir
