// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When is the last work over that uses pages which were given back together?
//
// A vector gives pages back on its stream. The memory map of a device is changed by the host and in no stream's order, so a
// page may not leave its addresses before its last work is over. One event, recorded at the give-back, tells of that. If CUDA
// records none, only a wait for all devices tells. If a graph may use the pages at each launch, nothing tells before all of the
// graph is gone (order/graph_life.hpp), and after that a wait for all devices, since work from before the capture may use them
// too.
//
// invariant: once 'is_over' was true, no work uses the pages.
// order:     'note' covers what was enqueued on the stream before it.
// cost:      an event for each give-back, and one question about it each time that somebody needs a page.
//            A vector that grows again into pages which it gave back has them at once. If it had given them back in a capture,
//            the graph counts at their next give-back too ('note_earlier').
// not for:   uses of pages that a vector holds.

#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/graph_life.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// One thread at a time, but for 'wait'.
class last_use {
public:
    /// What has to come before the pages are free.
    enum class until : unsigned char {
        event,   ///< the stream's work so far
        devices, ///< the work of all devices, since CUDA recorded no event
        graph,   ///< the end of a graph that may use them at each launch
        never    ///< nobody knows which graphs may use them
    };

    /// Notes the present end of `last`, which is not the host. Waits at most for room in a full queue.
    void note(order::placed_stream const& last) noexcept {
        runtime::capture_state now = runtime::capture_state::unknown;
        base::try_twice([&] {
            runtime::device_scope const there(last.device);
            return now = runtime::capture_state_of(last.stream), true;
        });
        if (runtime::may_be_captured(now))
            note_graph(last.stream);
        else if (now == runtime::capture_state::none && base::try_twice([&] { return record(last), true; }))
            until_ = until::event;
    }

    /// Whether the work is over. Never blocks. Throws cuda_error.
    bool is_over() {
        if (is_of_graph())
            return false;
        if (until_ == until::graph)
            until_ = until::devices;
        return over_ = over_ || (until_ == until::event && passed_.reached());
    }
    /// Whether a graph may use the pages: nothing that can be waited for brings the end about.
    bool is_of_graph() noexcept {
        while (!earlier_.empty() && !earlier_.back()->is_of_graph())
            earlier_.pop_back();
        return until_ == until::never || !earlier_.empty() || (until_ == until::graph && !life_.is_over());
    }
    /// Which 'wait' brings the end about, unless it is of a graph.
    until waits_for() const noexcept { return until_ == until::graph ? until::devices : until_; }

    /// Blocks until the work is over, as 'waits_for' said before. Any thread. Breaks no capture. Throws cuda_error.
    void wait(until what) const {
        if (what == until::devices)
            return runtime::wait_for_device(any_device);
        runtime::capture_mode_scope const relaxed;
        passed_.synchronize();
    }
    /// Says that 'wait' has returned. `what`: as above.
    void note_wait(until what) noexcept { over_ = over_ || what == waits_for(); }

    /// Notes that the pages are not free before the graphs of `earlier` are over either.
    void note_earlier(base::shared<last_use> const& earlier) noexcept {
        if (!earlier->is_of_graph() || (!earlier_.empty() && earlier_.back() == earlier))
            return;
        if (!base::try_twice([&] { return earlier_.push_back(earlier), true; }))
            until_ = until::never;
    }

    /// Notes that a graph may use the pages at each launch: that which is captured on `by`. The host: several graphs may.
    void note_graph(stream_ref by) noexcept {
        bool const is_known = !by.is_host() && base::try_twice([&] { return watch_graph_of(by); });
        until_ = is_known ? until::graph : until::never;
    }

private:
    bool watch_graph_of(stream_ref stream) {
        runtime::capture const by = runtime::capture_of(stream);
        if (by.id != 0)
            life_ = order::graph_life(by.graph);
        return by.id != 0;
    }
    void record(order::placed_stream const& last) {
        runtime::device_scope const there(last.device);
        runtime::event fresh(runtime::device_of(last.stream));
        fresh.record(last.stream);
        passed_ = static_cast<runtime::event&&>(fresh);
    }

    runtime::event passed_; // stays until the end, since a thread may be waiting for it
    order::graph_life life_;
    base::growing_array<base::shared<last_use>> earlier_; // whose graphs may use some of the pages
    until until_ = until::devices;
    bool over_ = false;
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
