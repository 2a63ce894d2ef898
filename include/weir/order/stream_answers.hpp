// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which of many events were reached, with as few questions to CUDA as possible?
//
// A stream reaches its events in the order in which they were recorded. So if that order is known, one answer tells of other
// events as well: if a stream has reached an event, it has reached all that were recorded before it; if it has not, it has
// not reached any that were recorded after it.
//
// If two threads record at the same time, nobody knows which came first. Therefore 'event_clock' takes a number from a counter
// before each record and another one after it. An event came before another for certain if its second number is less than the
// other's first.
//
// invariant: an answer is what CUDA would have said at that moment or earlier.
// cost:      a question to CUDA takes 112 to 139 ns. If an earlier answer tells, a few instructions.
// not for:   more than 8 streams: nothing is remembered of the others, so CUDA is asked about each of their events.

#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// Records events so that answers tell of others: of those that the same clock recorded. Any thread.
class event_clock {
public:
    /// Records `which` at the present end of `stream`, whose id is `id`, and notes that there. Waits at most for room in a full
    /// queue. Throws cuda_error.
    void record(runtime::event& which, stream_ref stream, unsigned long long id) {
        runtime::event_place place;
        place.stream_id = id;
        place.begin = now_.fetch_add(1, base::memory_order_acq_rel) + 1;
        which.record(stream);
        place.end = now_.fetch_add(1, base::memory_order_acq_rel) + 1;
        which.note(place);
    }

private:
    base::atomic<std::uint64_t> now_{0};
};

/// What is known of the events of one stream. Make one for each visit of many events. One thread at a time.
class stream_answer {
public:
    /// Whether the event was reached. Never blocks. Throws cuda_error.
    bool reached(runtime::event const& which) {
        runtime::event_place const at = which.place();
        if (at.end < reached_begin_ || at.begin == reached_begin_)
            return true;
        if (at.begin > missed_end_ || at.end == missed_end_)
            return false;
        bool const is = which.reached();
        if (is && at.begin > reached_begin_)
            reached_begin_ = at.begin;
        if (!is && at.end < missed_end_)
            missed_end_ = at.end;
        return is;
    }
    /// Whether the answers so far say that the event was not reached, nor any whose record began later.
    bool ends_before(runtime::event const& which) const noexcept { return which.place().begin > missed_end_; }

private:
    // The numbers of places are unique and begin with 1.
    std::uint64_t reached_begin_ = 0; // of the event whose record began last, of those that were reached
    std::uint64_t missed_end_ = ~std::uint64_t{0}; // of the event whose record ended first, of those that were not
};

/// The same for the events of several streams, and for events that no clock recorded.
class stream_answers {
public:
    /// Whether the event was reached. Never blocks. Throws cuda_error.
    bool reached(runtime::event const& which) {
        stream_answer* const known = find(which.place());
        return known ? known->reached(which) : which.reached();
    }
    /// Whether all of them were reached. Asks until it meets the first that was not.
    bool all_reached(base::growing_array<runtime::event> const& list) {
        for (runtime::event const& each : list)
            if (!reached(each))
                return false;
        return true;
    }
    /// Asks about the events of the list, up to the first that was not reached, so that the answers tell of others. It skips
    /// events whose answer would not tell of any.
    void learn(base::growing_array<runtime::event> const& list) {
        for (runtime::event const& each : list)
            if (stream_answer* const known = find(each.place()))
                if (!known->reached(each))
                    return;
    }

private:
    static constexpr unsigned most_streams = 8;

    // What is known of the event's stream; null if nothing is kept of it.
    stream_answer* find(runtime::event_place const& at) noexcept {
        if (at.begin == 0)
            return nullptr;
        for (unsigned i = 0; i != count_; ++i)
            if (streams_[i] == at.stream_id)
                return &answers_[i];
        if (count_ == most_streams)
            return nullptr;
        streams_[count_] = at.stream_id;
        return &answers_[count_++];
    }

    unsigned long long streams_[most_streams];
    stream_answer answers_[most_streams];
    unsigned count_ = 0;
};

} // namespace order
} // namespace v0
} // namespace weir
