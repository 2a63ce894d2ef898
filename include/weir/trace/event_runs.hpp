// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// In which order did the events happen that several threads wrote?
//
// What one lane of the ring holds, or one flush, is a few runs whose times only rise. A heap of the runs' next events gives all
// events in the order of their time.
//
// cost:      log2 of the runs that overlap an event.

#include <algorithm>
#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/trace/recorded_event.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// Events in the order of their time.
struct event_run {
    event const* next;
    event const* end;
    std::size_t number;
};

/// Adds the events from `first` to `end`, as they were written. A run ends where the time goes back: the clocks of two cores
/// differ by a little. Throws std::bad_alloc.
inline void add_runs(base::growing_array<event_run>& runs, event const* first, event const* end) {
    while (first != end) {
        event const* next = first + 1;
        while (next != end && next[-1].ticks <= next->ticks)
            ++next;
        runs.push_back({first, next, runs.size()});
        first = next;
    }
}

/// Calls take(event) for all events of the runs, in the order of their time. Changes the runs. Throws std::bad_alloc.
template <class Take>
void take_in_order(base::growing_array<event_run>& runs, Take const& take) {
    // Of events at one moment a free comes first: what another lane allocated may be what was freed.
    auto const later = [](event_run const& a, event_run const& b) {
        if (a.next->ticks != b.next->ticks)
            return a.next->ticks > b.next->ticks;
        bool const a_frees = a.next->kind == event_kind::free, b_frees = b.next->kind == event_kind::free;
        return a_frees != b_frees ? b_frees : a.number > b.number;
    };
    std::sort(runs.begin(), runs.end(), [&](event_run const& a, event_run const& b) { return later(b, a); });
    base::growing_array<event_run> open; // a heap of those that have begun
    std::size_t begun = 0;
    while (begun < runs.size() || !open.empty()) {
        while (begun < runs.size() && (open.empty() || later(*open.begin(), runs[begun]))) {
            open.push_back(runs[begun++]);
            std::push_heap(open.begin(), open.end(), later);
        }
        std::pop_heap(open.begin(), open.end(), later);
        event_run& first = open.back();
        take(*first.next);
        if (++first.next == first.end)
            open.pop_back();
        else
            std::push_heap(open.begin(), open.end(), later);
    }
}

} // namespace trace
} // namespace v0
} // namespace weir
