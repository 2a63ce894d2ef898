// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is one stream's work made to run after another's?
//
// Record an event on the earlier stream, make the later one wait for it, and destroy the event: CUDA keeps what the wait
// needs. Copies between containers on two streams rely on this, and so do containers that change their stream.
//
// invariant: only what was on the earlier stream at the call is waited for.
// order:     what 'earlier' was given before the call happens before what 'later' is given after it. Calls add up over any
//            number of streams.
// cost:      nothing if both are one stream. Otherwise two questions about capture, and an event that is created, recorded
//            and waited for: about 1 us. Where `earlier` is captured and of another device than the current one, an event more
//            for each device that is tried.
// not for:   the host, which can only wait by blocking: see 'synchronize'.

#include <weir/base/error.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// A stream, together with a device if it is a default stream: `device` is then the device whose default stream it is, or
/// any_device for the current one. For all other streams `device` is any_device.
struct placed_stream {
    stream_ref stream;
    int device;

    placed_stream(stream_ref name, int of = any_device) noexcept
        : stream(name), device(runtime::is_default_stream(name) ? of : any_device) {}

    /// What the name means at this moment in this thread. Throws cuda_error.
    static order::placed_stream now(stream_ref name) {
        return {name, runtime::is_default_stream(name) && !name.is_host() ? runtime::current_device() : any_device};
    }

    /// Whether the stream is being captured into a graph. Throws cuda_error.
    bool is_captured() const {
        runtime::device_scope const there(device);
        return runtime::is_capturing(stream);
    }
    /// Whether a graph has the stream's work: as 'is_captured', except for the legacy stream. That is never captured itself,
    /// and only says so while a capture stands in its way. Throws cuda_error.
    bool is_in_graph() const { return !runtime::is_legacy(stream) && is_captured(); }
    friend bool operator==(order::placed_stream const& a, order::placed_stream const& b) noexcept {
        return a.stream == b.stream && a.device == b.device;
    }
    friend bool operator!=(order::placed_stream const& a, order::placed_stream const& b) noexcept { return !(a == b); }
};

namespace detail {

// Throws usage_error unless `later` may wait: captured work can be waited for only within its own graph. `graph`: the id of
// the capture that `later` is to wait for; 0: what it waits for is not captured.
inline void require_same_graph(order::placed_stream const& later, unsigned long long graph) {
    runtime::device_scope const there(later.device);
    bool const captured = runtime::is_capturing(later.stream);
    if (captured && graph == 0)
        throw usage_error("weir: a stream that is being captured cannot wait for work outside its graph; bring the container "
                          "to the stream, or make the copy, before the capture begins");
    if (graph != 0 && (runtime::is_legacy(later.stream) || (captured && runtime::capture_of(later.stream).id != graph)))
        throw usage_error("weir: work that is being captured into a graph cannot be waited for by another graph, nor by the "
                          "legacy default stream; use a stream of the same capture");
}

// An event that is recorded on a stream whose device nobody knows: a captured stream may not be asked. Mostly it is the current
// one. If not, CUDA refuses an event of that device, which breaks no capture, and the other devices that the process uses are
// tried.
inline runtime::event passed_in_graph(stream_ref earlier) {
    int next = 0;
    for (int device = any_device;; device = next++) {
        runtime::event passed(device);
        try {
            passed.record(earlier);
            return passed;
        } catch (cuda_error const& refused) {
            int const count = refused.code() == cudaErrorInvalidResourceHandle ? runtime::device_count() : 0;
            while (next < count && !runtime::detail::is_ready(next))
                ++next;
            if (next >= count)
                throw;
        }
    }
}

} // namespace detail
} // namespace order

/// Makes work that is enqueued on `later` after this call run after the work that was enqueued on `earlier` before it. Both
/// are streams, of one device or of two. Any thread. The host waits at most for room in a full queue. Throws usage_error for
/// the host, and where the wait would break a capture: if `later` is captured and `earlier` is not, or is captured into another
/// graph; or if one is captured and the other is the legacy stream, which stands in its way. Throws cuda_error. After an
/// exception nothing is ordered.
inline void order_after(order::placed_stream const& later, order::placed_stream const& earlier) {
    if (later.stream.is_host() || earlier.stream.is_host())
        throw usage_error(
            "weir: the host is no stream that waits or is waited for; use 'weir::synchronize(stream)' to wait on the "
            "host, and nothing for work that the host has done already");
    if (later == earlier)
        return;
    runtime::event passed;
    {
        runtime::device_scope const there(earlier.device);
        bool const in_graph = runtime::is_capturing(earlier.stream);
        if (in_graph && runtime::is_legacy(earlier.stream))
            throw usage_error(
                "weir: nothing can be put after the legacy default stream while a stream is captured that waits for "
                "it; use another stream, or do it before the capture begins");
        order::detail::require_same_graph(later, in_graph ? runtime::capture_of(earlier.stream).id : 0);
        if (in_graph) {
            passed = order::detail::passed_in_graph(earlier.stream);
        } else {
            passed = runtime::event(runtime::device_of(earlier.stream));
            passed.record(earlier.stream);
        }
    }
    runtime::device_scope const there(later.device);
    passed.make_wait(later.stream);
}
inline void order_after(stream_ref later, stream_ref earlier) {
    order_after(order::placed_stream{later}, order::placed_stream{earlier});
}

} // namespace v0
} // namespace weir
