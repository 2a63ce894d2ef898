// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which streams used memory that goes back as a whole, and up to which point?
//
// Blocks of one piece of memory are freed on several streams, but all of it goes back on one stream. Each free is noted with an
// event of its stream, and the stream on which the memory goes back waits for these events.
//
// invariant: what a stream did before 'note' comes before what another does after it was made to wait.
// order:     an event covers what was enqueued before the note.
// cost:      an event a note, less those that were reached since.
// not for:   blocks that go back one by one: see second_uses.

#include <cstddef>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// Any thread may call any member.
class last_uses {
public:
    /// Notes what `stream`, which is not captured, did so far. If it is the host, there is nothing to wait for. Waits
    /// at most for room in a full queue.
    void note(stream_ref stream) noexcept {
        if (stream.is_host())
            return;
        try {
            uses_.add(all, stream);
        } catch (...) { // CUDA failed, or the host has no memory
            note_unknown();
        }
    }

    /// Notes that some stream used the memory, of which nothing else is known. Never blocks.
    void note_unknown() noexcept { untold_.store(true, base::memory_order_relaxed); }

    /// Makes `stream` wait for all that was noted, and forgets the notes. False: only the host can wait, by 'wait', and the
    /// notes stay. That is so if `stream` is the host and something is noted, if a note failed, if CUDA fails here, and while
    /// another thread waits. Waits at most for room in a full queue.
    [[nodiscard]] bool try_make_wait(stream_ref stream) noexcept {
        if (!turn_.try_lock())
            return false;
        bool const done = !untold_.load(base::memory_order_relaxed) && !(stream.is_host() && uses_.any()) &&
                          (!uses_.any() || visited([&](runtime::event const& each) { each.make_wait(stream); }));
        turn_.unlock();
        return done;
    }

    /// Blocks until all that was noted is over, and forgets the notes; if a note failed, or CUDA fails here, until every device
    /// that the process uses has done all work. Call this with no lock that a host function may want. Throws cuda_error if that
    /// fails twice: the device is lost, or it is full while a graph is captured. The next call then waits for all work.
    void wait() {
        base::lock_guard<base::mutex> const one_waits(turn_); // others wait as long: the notes are here
        if (uses_.any())
            static_cast<void>(visited([](runtime::event const& each) { each.synchronize(); }));
        for (int tries = 1; untold_.exchange(false, base::memory_order_relaxed); ++tries) {
            try {
                runtime::wait_for_device(any_device);
            } catch (...) {
                note_unknown();
                if (tries == 2)
                    throw;
            }
        }
    }

private:
    static constexpr std::size_t all = 1; // the offset that stands for all blocks; 0 is nobody's

    // Takes the notes out, and calls visit(event) for each. If it throws, all work is noted instead, and the answer is false.
    template <class Visit>
    bool visited(Visit const& visit) noexcept {
        try {
            runtime::capture_mode_scope const relaxed;
            for (runtime::event const& each : uses_.take(all, on_host).events)
                visit(each);
            return true;
        } catch (...) {
            note_unknown();
            return false;
        }
    }

    base::mutex turn_; // of the thread that waits
    order::second_uses uses_;
    base::atomic<bool> untold_{false};
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
