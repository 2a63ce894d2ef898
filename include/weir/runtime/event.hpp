// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one learn that a stream has passed a certain point?
//
// 'event' owns a cudaEvent_t without timing, which is the cheap kind. Record it on a stream; then ask whether the stream has
// reached it, wait for it on the host, or make another stream wait for it. To record it again moves it forward.
//
// invariant: an event stays valid after the stream that it was recorded on is destroyed.
// order:     'reached' is true once everything that was enqueued before 'record' has run. It is true for an event that was
//            never recorded.
// cost:      record 148 ns, reached 112 to 139 ns, make_wait 112 ns; twice that if the host is slow. If the stream's queue is
//            full (1,021 launches on an H200), record and make_wait wait as a launch would, until the device has taken up some
//            of its work. Where a member of weir waits for no more than that, it says 'for room in a full queue'.
// not for:   timing, nor for other processes.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/swap.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// Where and when an event was recorded: on the stream of that id, at a moment between `begin` and `end`, two numbers of one
/// counter. 0: nobody knows.
struct event_place {
    unsigned long long stream_id = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

/// Movable, not copyable. Any thread may ask, wait, or make a stream wait at any time, even while another thread records: the
/// answer is then for the point before or for the new one. Only one thread at a time may record. Whoever moves or destroys
/// the event must be alone with it.
class event {
public:
    /// No event yet.
    event() noexcept = default;

    /// Creates the event on device number `device` (any_device: the current one). Throws cuda_error.
    explicit event(int device) {
        device_scope const there(device);
        check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    event(event&& other) noexcept : event_(other.event_), place_(other.place_) { other.event_ = nullptr; }
    event& operator=(event&& other) noexcept {
        base::swap_values(event_, other.event_);
        base::swap_values(place_, other.place_);
        return *this;
    }
    ~event() {
        if (event_)
            static_cast<void>(base::try_twice([this] { return succeeded(cudaEventDestroy(event_)); }));
    }

    explicit operator bool() const noexcept { return event_ != nullptr; }
    cudaEvent_t get() const noexcept { return event_; }

    /// What the caller noted about the last 'record'; stream_answers reads it.
    event_place const& place() const noexcept { return place_; }
    void note(event_place const& place) noexcept { place_ = place; }

    /// Moves the event to the present end of `stream`, which must belong to the event's device. Waits at most for room in a
    /// full queue. Throws cuda_error; the event then stays where it was.
    void record(stream_ref stream) {
        check_cuda(detail::record_event(event_, stream.get()), "cudaEventRecord");
        place_ = event_place();
    }

    /// Whether everything before the event has run. Never blocks. Throws cuda_error.
    bool reached() const {
        cudaError_t const answer = detail::query_event(event_);
        if (answer == cudaErrorNotReady)
            return false;
        check_cuda(answer, "cudaEventQuery");
        return true;
    }

    /// Makes work that is enqueued on `stream` after this call wait for the event. Waits at most for room in a full queue.
    /// Throws cuda_error.
    void make_wait(stream_ref stream) const {
        check_cuda(detail::make_stream_wait(stream.get(), event_), "cudaStreamWaitEvent");
    }

    /// Blocks the host until the event has been reached. Throws cuda_error.
    void synchronize() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
    /// Blocks the host unless the event has been reached already. The answer is whether it had to block. Throws cuda_error.
    bool wait() const {
        if (reached())
            return false;
        synchronize();
        return true;
    }

private:
    cudaEvent_t event_ = nullptr;
    event_place place_;
};

} // namespace runtime
} // namespace v0
} // namespace weir
