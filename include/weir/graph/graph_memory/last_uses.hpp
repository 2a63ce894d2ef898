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

    /// Makes `stream` wait for all that was noted, and forgets the notes; if it is the host, this blocks. If a note failed, or
    /// CUDA fails here, it blocks until every device that the process uses has done all work. Throws cuda_error if that fails
    /// twice: the device is lost, or it is full while a graph is captured. The next call then waits for all work.
    void make_wait(stream_ref stream) {
        if (uses_.any())
            try {
                runtime::capture_mode_scope const relaxed;
                for (runtime::event const& each : uses_.take(all, stream).events)
                    if (stream.is_host())
                        each.synchronize();
                    else
                        each.make_wait(stream);
            } catch (...) {
                note_unknown();
            }
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

    order::second_uses uses_;
    base::atomic<bool> untold_{false};
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
