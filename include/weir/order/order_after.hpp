// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is one stream's work put after another's?
//
// Record an event on the earlier stream, make the later one wait for it, let the event go: CUDA keeps what
// the wait needs. Copies between containers on two streams stand on it, and so do containers that change
// their stream.
//
// invariant: only what was on the earlier stream at the call is waited for.
// order:     'earlier' so far happens before 'later' from now on; orders add up over any number of them.
// cost:      nothing on one stream; else two questions about capture, and an event created, recorded and waited for: about 1
//            us.
// not for:   the host, which nothing makes wait without blocking it: see 'synchronize'.

#include <weir/base/error.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// A stream, and whose default stream it is where it is one: a device's, or the current device's (any_device, as of others).
struct placed_stream {
    stream_ref stream;
    int device;

    placed_stream(stream_ref name, int of = any_device) noexcept
        : stream(name), device(runtime::is_default_stream(name) ? of : any_device) {}

    /// What the name means now. Throws cuda_error.
    static order::placed_stream now(stream_ref name) {
        return {name, runtime::is_default_stream(name) && !name.is_host() ? runtime::current_device() : any_device};
    }

    /// Whether it is being captured into a graph. Throws cuda_error.
    bool is_captured() const {
        runtime::device_guard const there(device);
        return runtime::is_capturing(stream);
    }
    friend bool operator==(order::placed_stream const& a, order::placed_stream const& b) noexcept {
        return a.stream == b.stream && a.device == b.device;
    }
    friend bool operator!=(order::placed_stream const& a, order::placed_stream const& b) noexcept { return !(a == b); }
};

namespace detail {

// What is captured is waited for in its graph alone. `graph`: the capture of what `later` is to wait for; 0: there is none.
inline void require_same_graph(order::placed_stream const& later, unsigned long long graph) {
    runtime::device_guard const there(later.device);
    bool const captured = runtime::is_capturing(later.stream);
    if (captured && graph == 0)
        throw usage_error("weir: a stream that is being captured cannot wait for work outside its graph; bring the container "
                          "to the stream, or make the copy, before the capture begins");
    if (graph != 0 && (runtime::is_legacy(later.stream) || (captured && runtime::capture_of(later.stream).id != graph)))
        throw usage_error("weir: work that is being captured into a graph cannot be waited for by another graph, nor by the "
                          "legacy default stream; use a stream of the same capture");
}

} // namespace detail
} // namespace order

/// Makes work enqueued on `later` from now on run after the work enqueued on `earlier` so far. Both are streams, of one device
/// or of two. Any thread. Does not block. Throws usage_error for the host, and where that would break a capture: `later` is
/// captured and `earlier` is not, or into another graph; or one is captured and the other is the legacy stream, which stands in
/// its way; and cuda_error. Nothing is ordered then.
inline void order_after(order::placed_stream const& later, order::placed_stream const& earlier) {
    if (later.stream.is_host() || earlier.stream.is_host())
        throw usage_error(
            "weir: the host is no stream that waits or is waited for; use 'weir::synchronize(stream)' to wait on the "
            "host, and nothing for work that the host has done already");
    if (later == earlier)
        return;
    runtime::event passed;
    {
        runtime::device_guard const there(earlier.device);
        bool const in_graph = runtime::is_capturing(earlier.stream);
        if (in_graph && runtime::is_legacy(earlier.stream))
            throw usage_error(
                "weir: nothing can be put after the legacy default stream while a stream is captured that waits for "
                "it; use another stream, or do it before the capture begins");
        order::detail::require_same_graph(later, in_graph ? runtime::capture_of(earlier.stream).id : 0);
        // A captured stream may not be asked for its device; a capture that changes devices is its author's to order.
        passed = runtime::event(in_graph ? any_device : runtime::device_of(earlier.stream));
        passed.record(earlier.stream);
    }
    runtime::device_guard const there(later.device);
    passed.make_wait(later.stream);
}
inline void order_after(stream_ref later, stream_ref earlier) {
    order_after(order::placed_stream{later}, order::placed_stream{earlier});
}

} // namespace v0
} // namespace weir
