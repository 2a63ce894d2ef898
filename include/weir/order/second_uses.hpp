// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which streams besides its own use a block, and up to which point?
//
// A block belongs to the stream that it was allocated on. A caller who uses it on another stream as well must say so; that is
// a second use. There are two ways. The caller marks the stream, once and at any time, and the free of the block records an
// event at the end that the stream has then. Or the caller knows the last use: then an event is recorded at once, and the
// stream may end after that. The free finds both here, and waits for the events. Few blocks have second uses, so a free first
// reads one counter.
//
// invariant: an offset is in the map if and only if it has an event or a mark. No stream marks a block twice.
// order:     the event of a last use covers what was enqueued before 'add'; that of a mark covers what was enqueued before
//            'take'. Each event knows when it was recorded.
// cost:      if no block has a second use, one relaxed load for each free; otherwise a lock and a look-up. A last use: a
//            question for the stream's id, and an event. A mark: the same question, and at the free two questions and an
//            event. A block has about as many events as it had uses that were not over when the next ones came.
// not for:   the block's own stream.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <new>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/order/stream_answers.hpp>
#include <weir/order/stream_mark.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// What a free knows of its block's uses on other streams.
struct block_uses {
    base::growing_array<runtime::event> events; ///< what the free waits for
    base::growing_array<stream_mark> marks; ///< the marked streams, to which some of these belong
    bool in_graph = false; ///< a graph that is being captured uses the block, at each of its launches, or may do so
    runtime::capture graph; ///< if `in_graph`: the only such graph; none if there are several, or it is not known which it is
    bool untold = false; ///< no event tells of some use: only a wait for all devices does

    bool empty() const noexcept { return events.empty() && !in_graph && !untold; }
    /// Notes that the graph of the capture `now` uses the block; of none: some graph that is not known.
    void note_graph(runtime::capture now) noexcept {
        graph = in_graph && graph.id != now.id ? runtime::capture{} : now;
        in_graph = true;
    }
    /// Whether no work uses the block once the events were reached.
    bool are_known() const noexcept { return !in_graph && !untold; }
};

/// Any thread may call any member.
class second_uses {
public:
    /// Marks `stream`, of any device, as one that uses the block at `offset`: 'take' records an event on it. If it is a
    /// thread's own default stream, an event is recorded at once as well, for what it did so far. Waits at most for room
    /// in a full queue. Throws usage_error for a stream that is being captured, cuda_error, or std::bad_alloc, before any
    /// change.
    void mark(std::size_t offset, stream_ref stream) {
        stream_mark const fresh(stream);
        runtime::event so_far;
        if (runtime::is_per_thread(stream)) // threads end
            so_far = recorded(stream, fresh.device(), runtime::id_of(stream));
        base::lock_guard<base::mutex> const lock(mutex_);
        block_uses& own = of(offset, so_far ? 1 : 0, 1);
        if (so_far)
            own.events.push_back(std::move(so_far));
        add_mark(own.marks, fresh);
    }

    /// Notes that the work which is on `stream` at this call uses the block at `offset`, and no later work. The stream may
    /// end after that. Otherwise as 'mark'.
    void add(std::size_t offset, stream_ref stream) {
        require_end(stream);
        runtime::event passed = recorded(stream, runtime::device_of(stream), runtime::id_of(stream));
        base::lock_guard<base::mutex> const lock(mutex_);
        of(offset, 1, 0).events.push_back(std::move(passed));
    }

    /// Puts back what 'take' took out, so that another 'take' finds it. If the host has no memory for that, this blocks until
    /// the events were reached instead, and the marks are lost.
    void put_back(std::size_t offset, block_uses&& uses) noexcept {
        if (uses.events.empty() && uses.marks.empty())
            return;
        try {
            base::lock_guard<base::mutex> const lock(mutex_);
            block_uses& list = of(offset, uses.events.size(), uses.marks.size());
            for (runtime::event& each : uses.events)
                list.events.push_back(std::move(each));
            for (stream_mark const& each : uses.marks)
                add_mark(list.marks, each);
        } catch (...) {
            for (runtime::event const& each : uses.events) {
                try {
                    runtime::capture_mode_scope const relaxed;
                    each.synchronize();
                } catch (...) { // the device has failed: nothing runs any more
                }
            }
        }
    }

    /// Whether any block has second uses. This is one relaxed load, so a free can ask each time.
    bool any() const noexcept { return count_.load(base::memory_order_relaxed) != 0; }

    /// Takes out the uses of the block at `offset`, which is freed on `freed_on`; empty if it has none. It records an event
    /// on each stream that was marked, but not on `freed_on`. The answer says if an event could not be recorded, and if a graph
    /// may use the block. Waits at most for room in a full queue.
    block_uses take(std::size_t offset, stream_ref freed_on) noexcept {
        block_uses found;
        if (!any())
            return found;
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            std::uint32_t const at = index_.find(offset);
            if (at == base::address_map::none)
                return found;
            base::swap_values(found, blocks_[at]);
            index_.erase(offset);
            spare_.push_back(at);
            count_.fetch_sub(1, base::memory_order_relaxed);
        }
        for (stream_mark const& each : found.marks)
            if (!base::try_twice([&] { return end(found, each, freed_on), true; })) {
                if (each.may_be_captured())
                    found.note_graph({});
                else
                    found.untold = true;
            }
        return found;
    }

private:
    static constexpr std::size_t few = 32; // up to so many events of a block are kept without asking which were reached

    // Adds to `uses` an event at the present end of a marked stream. Throws cuda_error, std::bad_alloc.
    void end(block_uses& uses, stream_mark const& marked, stream_ref freed_on) {
        placed_stream const own = placed_stream::now(freed_on);
        runtime::device_scope const there(marked.place());
        stream_mark::view const found = marked.look();
        if (found.now == stream_mark::state::captured)
            uses.note_graph(runtime::capture_if_known(found.stream));
        else if (found.now == stream_mark::state::unknown)
            uses.untold = true;
        else if (placed_stream(found.stream, marked.device()) != own)
            uses.events.push_back(recorded(found.stream, marked.device(), found.id));
    }

    // Records an event at the present end of the stream, whose id is `id`. Throws cuda_error.
    runtime::event recorded(stream_ref stream, int device, unsigned long long id) {
        runtime::event passed(device);
        clock_.record(passed, stream, id);
        return passed;
    }

    // The entry of the block, with room for more. Makes one if there is none. Throws std::bad_alloc and cuda_error before any
    // change that shows.
    block_uses& of(std::size_t offset, std::size_t more_events, std::size_t more_marks) {
        std::uint32_t at = index_.find(offset);
        bool const is_new = at == base::address_map::none;
        if (is_new && spare_.empty()) {
            spare_.reserve(blocks_.size() + 1); // so that 'take' never allocates
            blocks_.push_back({});
            spare_.push_back(static_cast<std::uint32_t>(blocks_.size() - 1));
        }
        block_uses& found = blocks_[is_new ? at = spare_.back() : at];
        std::size_t const more =
            more_events + found.marks.size() + more_marks; // for 'take' too, which has no memory to ask for
        if (more_events != 0 && found.events.size() >= few && found.events.capacity() - found.events.size() < more)
            drop_reached(found.events); // so that a block which is used for long keeps few events
        found.events.reserve_more(more);
        found.marks.reserve_more(more_marks);
        if (is_new) {
            index_.insert(offset, at);
            spare_.pop_back();
            count_.fetch_add(1, base::memory_order_relaxed);
        }
        return found;
    }

    // Removes the events that were reached. Throws cuda_error.
    static void drop_reached(base::growing_array<runtime::event>& uses) {
        runtime::capture_mode_scope const relaxed;
        for (std::size_t i = uses.size(); i-- > 0;)
            if (uses[i].reached()) {
                base::swap_values(uses[i], uses.back());
                uses.pop_back();
            }
    }

    base::mutex mutex_;
    base::address_map index_;                 // offset -> index into blocks_
    base::growing_array<block_uses> blocks_;
    base::growing_array<std::uint32_t> spare_; // indices into blocks_ that no block uses
    base::atomic<std::size_t> count_{0};
    event_clock clock_;
};

/// Whether every event of `events` has been reached. Never blocks. Throws cuda_error.
inline bool all_reached(base::growing_array<runtime::event> const& events) {
    for (runtime::event const& each : events)
        if (!each.reached())
            return false;
    return true;
}

} // namespace order
} // namespace v0
} // namespace weir
