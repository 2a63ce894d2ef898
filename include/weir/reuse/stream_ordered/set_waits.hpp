// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a host thread wait until no work uses what was freed?
//
// First, under the locks, it notes what to wait for: the sets' events, the events of deferred blocks (which other streams
// used), and the devices on which work may run that no event tells of. Then it waits without a lock, so that all other
// threads go on. At the end it takes the locks again, and each set that is as it was comes to rest: anyone may have its
// bytes. A set to which bytes came meanwhile is left for the next time.
//
// invariant: what comes to rest was freed before the wait began.
// order:     `moving` is the lock under which bytes go from one set to another. It is held while the sets are asked, so that
//            no bytes are missed on their way. After it, each set's own lock is taken.
// cost:      one event's wait for each set that is not at rest; and where no event tells of some bytes, a wait for the device
//            (runtime/wait.hpp).
// not for:   deciding when to wait: that is pool/pool/ladder.hpp.

#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/order/stranded_blocks.hpp>
#include <weir/reuse/stream_ordered/deferred_blocks.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Blocks until every event that the sets know of has been reached, and tells whether any had not been. `sets`: a
/// stream_directory. Any thread. Throws cuda_error, std::bad_alloc.
template <class Sets, class Lock>
bool wait_for_events(Sets& sets, Lock& moving) {
    using locked = typename Sets::locked;
    runtime::capture_mode_scope const relaxed;
    base::growing_array<base::shared<runtime::event>> events;
    base::growing_array<shared_uses> uses;
    {
        base::lock_guard<Lock> const none(moving);
        for (auto& each : sets) {
            locked const own(each);
            own->deferred().list_uses(uses);
            if (base::shared<runtime::event> const& passed = own->safe().passed())
                events.push_back(passed);
        }
    }
    bool any = false;
    for (base::shared<runtime::event> const& passed : events)
        any |= passed->wait();
    return wait_for(uses) || any;
}

/// Blocks until no work uses the bytes that are in the sets or stranded at the call. Then the sets to which nothing came
/// meanwhile come to rest, and what was stranded before is free. It waits for events; where none tells of some bytes, it
/// waits for all work on the stream's device, or on all devices in use. Any thread. Throws cuda_error, std::bad_alloc.
template <class Sets, class Lock>
void settle_sets(Sets& sets, order::stranded_blocks& stranded, Lock& moving) {
    using locked = typename Sets::locked;
    struct moment {
        typename Sets::set& which;
        std::uint64_t arrivals;
        base::shared<runtime::event> passed;
    };
    runtime::capture_mode_scope const relaxed;
    base::growing_array<moment> moments;
    base::growing_array<int> places; // devices on which work may run that no event tells of; any_device: any in use
    base::growing_array<shared_uses> uses;
    std::uint64_t stranded_until = 0;
    auto const add_place = [&places](int device) {
        bool fresh = true;
        for (int other : places)
            fresh &= other != device;
        if (fresh)
            places.push_back(device);
    };
    {
        base::lock_guard<Lock> const none(moving);
        for (auto& each : sets) {
            locked const own(each);
            if (own->is_at_rest())
                continue;
            moments.push_back(moment{each, own->arrivals(), own->safe().passed()});
            own->deferred().list_uses(uses);
            if (own->is_untold())
                add_place(own->device());
        }
        // The list is asked after the sets, since bytes go from a set to the list: so none is missed on its way.
        locked const host = sets.host();
        stranded.look_at_graphs();
        stranded_until = stranded.mark();
        stranded.visit_devices(add_place);
    }
    for (int place : places)
        runtime::wait_for_device(place);
    for (moment const& then : moments)
        if (then.passed)
            then.passed->wait();
    wait_for(uses);
    for (moment const& then : moments) {
        locked const own(then.which);
        if (own->arrivals() == then.arrivals)
            own->come_to_rest();
    }
    locked const host = sets.host();
    stranded.take_until(stranded_until, [&](base::range block) {
        host->covered().give(block);
        host->update_hint();
    });
}

} // namespace reuse::detail
} // namespace v0
} // namespace weir
