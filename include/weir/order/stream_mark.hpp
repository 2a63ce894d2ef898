// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which stream uses a block, if the end of its work is asked for only later?
//
// A caller says once that a stream uses a block, before or after the launches; this marks the stream. Only the free of the
// block asks where the stream's work ends. By then the handle may name another stream, so the mark keeps the stream's id as
// well.
//
// A thread's own default stream has a name in that thread only. If another thread frees the block, it asks the legacy stream
// instead, which waits for the other one. So after 'used_on(p, cudaStreamPerThread)', which marks the calling thread's
// stream, a free in another thread waits for all blocking streams of the device.
//
// If a marked stream is captured at the free, the free counts as one on a captured stream.
//
// invariant: a mark names one stream that ever existed, whatever its handle names later.
// order:     the marked stream must live until 'look' is called for the last time, and so must the thread whose default
//            stream it is. CUDA crashes on the handle of a stream that is gone, unless another stream has that handle.
// cost:      three questions to CUDA to make a mark, two to look (runtime/capture.hpp).
// not for:   a use that is over: an event tells of that, and it outlives the stream (order/second_uses.hpp).

#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// Throws usage_error while `stream` is captured: the work of such a stream has no end that a free could wait for.
inline void require_end(stream_ref stream) {
    if (runtime::is_capturing(stream))
        throw runtime::capture_refusal("weir: 'used_on' cannot mark a stream that is being captured into a graph; keep the "
                                       "block until the graph has run instead");
}

/// One thread at a time.
class stream_mark {
public:
    /// What a look finds: a stream whose end can be asked for, a captured one, or nothing that is known. Nothing is known if
    /// another stream has the handle, or if it is the legacy stream while a capture stands in its way.
    enum class state { open, captured, unknown };
    struct view {
        state now;
        stream_ref stream; ///< names the stream, or in another thread one that waits for it
        unsigned long long id;
    };

    /// Marks `stream`, of any device. Throws usage_error while it is captured; cuda_error.
    explicit stream_mark(stream_ref stream) : stream_mark(stream, 0, any_device) {
        require_end(stream);
        id_ = runtime::id_of(stream);
        device_ = runtime::device_of(stream);
    }
    /// Marks a stream of the current device that is being captured. Nobody may ask for its id, so the mark has none.
    static stream_mark of_captured(stream_ref stream) { return stream_mark(stream, 0, runtime::current_device()); }

    stream_ref stream() const noexcept { return stream_; }
    int device() const noexcept { return device_; }
    /// The device to make current before the handle is used; any_device if that does not matter.
    int place() const noexcept { return runtime::is_default_stream(stream_) ? device_ : any_device; }
    /// Whether both mark the same stream.
    bool is_as(stream_mark const& other) const noexcept {
        return id_ == other.id_ && (id_ != 0 || stream_ == other.stream_);
    }

    /// Where a look fails again and again: whether a graph may be captured on the stream. Never blocks.
    bool may_be_captured() const noexcept {
        if (runtime::is_default_stream(stream_)) // a thread's own may be another thread's than this one's
            return runtime::is_per_thread(stream_) && runtime::capture_state_of(stream_) != runtime::capture_state::hindered;
        return runtime::may_be_captured(runtime::capture_state_of(stream_));
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
        if (runtime::is_capturing(all)) // it may be a capture of the thread whose stream it is
            return {state::captured, all, 0};
        return {state::open, all, runtime::id_of(all)};
    }

private:
    stream_mark(stream_ref stream, unsigned long long id, int device) noexcept : stream_(stream), device_(device), id_(id) {}

    stream_ref stream_;
    int device_;
    unsigned long long id_; // 0: not known
};

/// Adds a mark to those of a block, unless the same stream is marked already. Throws std::bad_alloc before any change.
inline void add_mark(base::growing_array<stream_mark>& marks, stream_mark const& fresh) {
    for (stream_mark const& each : marks)
        if (each.is_as(fresh))
            return;
    marks.push_back(fresh);
}

} // namespace order
} // namespace v0
} // namespace weir
