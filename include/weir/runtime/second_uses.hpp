// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which streams besides its own used a block, and up to where?
//
// A block belongs to the stream that it was allocated on. A caller who uses it on another stream as well says
// so, and an event is recorded there and then, while that stream surely lives. The free finds the events here
// and waits for them. Few blocks have any, so a free first reads one counter.
//
// invariant: an offset is in the map if and only if it has at least one event.
// order:     an event covers what was enqueued before it was added; later work needs another. It knows when that was.
// cost:      none: one relaxed load a free where no block has a second use; else a lock and a look-up, and a use the stream's
//            id and an event. A block has about as many events as uses that were not over when the next ones came.
// not for:   the block's own stream.

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/atomic.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/mutex.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Any thread may call any member.
class second_uses {
public:
    /// Notes that the work before the present end of `stream`, a stream of any device, uses the block at `offset`.
    /// Never blocks on a device. Throws usage_error for a stream that is being captured, whose work has no end yet,
    /// cuda_error, or std::bad_alloc, before any change.
    void add(std::size_t offset, stream_ref stream) {
        if (is_capturing(stream))
            throw usage_error("weir: 'used_on' cannot mark a stream that is being captured into a graph; keep the "
                              "block until the graph has run instead");
        event_place place;
        place.stream_id = id_of(stream);
        event passed(device_of(stream));
        place.begin = marks_.fetch_add(1, memory_order_acq_rel) + 1;
        passed.record(stream);
        place.end = marks_.fetch_add(1, memory_order_acq_rel) + 1;
        passed.note(place);
        lock_guard<mutex> const lock(mutex_);
        std::uint32_t const known = blocks_.find(offset);
        if (known != address_map::none && events_[known].size() >= few && events_[known].size() == events_[known].capacity())
            drop_reached(events_[known]); // so that a block which is used for long has few
        events_[list_of(offset, 1)].push_back(std::move(passed));
    }

    /// Puts back what 'take' took out. Where the host has no memory for that, it blocks until the uses are over.
    void put_back(std::size_t offset, growing_array<event>&& uses) noexcept {
        try {
            lock_guard<mutex> const lock(mutex_);
            growing_array<event>& list = events_[list_of(offset, uses.size())];
            for (event& each : uses)
                list.push_back(std::move(each));
        } catch (std::bad_alloc const&) {
            for (event const& each : uses) {
                try {
                    capture_mode_guard const relaxed;
                    each.synchronize();
                } catch (...) { // the device is lost: nothing runs any more
                }
            }
        }
    }

    /// Whether any block has second uses. Reading it costs a free nothing.
    bool any() const noexcept { return count_.load(memory_order_relaxed) != 0; }

    /// Takes out the events of the block at `offset`; empty where it has none. Never blocks.
    growing_array<event> take(std::size_t offset) noexcept {
        growing_array<event> found;
        if (!any())
            return found;
        lock_guard<mutex> const lock(mutex_);
        std::uint32_t const at = blocks_.find(offset);
        if (at != address_map::none) {
            found.swap(events_[at]);
            blocks_.erase(offset);
            spare_.push_back(at);
            count_.fetch_sub(1, memory_order_relaxed);
        }
        return found;
    }

private:
    static constexpr std::size_t few = 32; // events of a block of which none is looked at

    // The block's list, with room for `more` events. Throws std::bad_alloc before any change that shows.
    std::uint32_t list_of(std::size_t offset, std::size_t more) {
        std::uint32_t at = blocks_.find(offset);
        if (at != address_map::none) {
            events_[at].reserve_more(more);
            return at;
        }
        if (spare_.empty()) {
            spare_.reserve(events_.size() + 1); // so that 'take' never allocates
            events_.push_back({});
            spare_.push_back(static_cast<std::uint32_t>(events_.size() - 1));
        }
        at = spare_.back();
        events_[at].reserve_more(more);
        blocks_.insert(offset, at);
        spare_.pop_back();
        count_.fetch_add(1, memory_order_relaxed);
        return at;
    }

    // Throws cuda_error.
    static void drop_reached(growing_array<event>& uses) {
        capture_mode_guard const relaxed;
        for (std::size_t i = uses.size(); i-- > 0;)
            if (uses[i].reached()) {
                std::swap(uses[i], uses.back());
                uses.pop_back();
            }
    }

    mutex mutex_;
    address_map blocks_;                     // offset -> index into events_
    growing_array<growing_array<event>> events_; // one list a block
    growing_array<std::uint32_t> spare_;       // lists that no block uses
    atomic<std::size_t> count_{0};
    atomic<std::uint64_t> marks_{0}; // counted so far: what is counted later comes later
};

/// Whether every event of `events` has been reached. Never blocks. Throws cuda_error.
inline bool all_reached(growing_array<event> const& events) {
    for (event const& each : events)
        if (!each.reached())
            return false;
    return true;
}

} // namespace v0
} // namespace weir
