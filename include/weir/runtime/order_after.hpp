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
#include <weir/runtime/device_guard.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/identity.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Makes work enqueued on `later` from now on run after the work enqueued on `earlier` so far. Both are
/// streams, of one device or of two, not the host. Any thread. Does not block. Throws usage_error where `later` is captured
/// and `earlier` is not, or where `earlier` is the legacy stream while a stream is captured that waits for it: either would
/// break the capture; and cuda_error. Nothing is ordered then.
inline void order_after(stream_ref later, stream_ref earlier) {
    if (later == earlier)
        return;
    bool const in_graph = is_capturing(earlier);
    if (in_graph && is_legacy(earlier))
        throw usage_error("weir: nothing can be put after the legacy default stream while a stream is captured that waits for it; "
                          "use another stream, or do it before the capture begins");
    if (!in_graph && is_capturing(later))
        throw usage_error("weir: a stream that is being captured cannot wait for work outside its graph; bring the container "
                          "to the stream, or make the copy, before the capture begins");
    // A captured stream may not be asked for its device; a capture that changes devices is its author's to order.
    event passed(in_graph ? any_device : device_of(earlier));
    passed.record(earlier);
    passed.make_wait(later);
}

} // namespace v0
} // namespace weir
