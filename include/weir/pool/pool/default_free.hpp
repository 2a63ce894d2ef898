// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a block freed on a default stream?
//
// A default stream is a name: it means a stream of whichever device is current, not of the device that the block lies on. The
// block may have been used on the default streams of both devices, so the free waits for both. It is made on the pool's device,
// behind the last use on the current one.
//
// order:     behind what is enqueued so far on the default streams of both devices.
// cost:      one more event where another device is current.
// not for:   streams that the program made, which belong to one device.

#include <weir/base/range.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace pools::detail {

// Where a free by default failed: whether a graph may use the block, captured on the default stream of the current device or of
// number `device`.
inline bool default_may_be_captured(stream_ref stream, int device) noexcept {
    if (runtime::is_legacy(stream) || runtime::capture_state_of(stream) == runtime::capture_state::hindered)
        return false; // a host function cannot even ask for the device
    bool may = true; // if CUDA does not say
    base::try_twice([&] {
        bool const here = runtime::may_be_captured(runtime::capture_state_of(stream));
        runtime::device_scope const there(device);
        return may = here || runtime::may_be_captured(runtime::capture_state_of(stream)), true;
    });
    return may;
}

/// Gives `block` to the reuse rule of a pool of device number `device`. If CUDA fails, and fails again, the block is stranded:
/// it has no event, and only 'settle' frees it. If a graph may use it, it is lost. Any thread.
template <class Rule>
[[gnu::noinline]] void give_by_default(Rule& rule, base::range block, stream_ref stream, int device) noexcept {
    bool const done = base::try_twice([&] {
        bool const elsewhere = runtime::current_device() != device;
        if (elsewhere && runtime::capture_state_of(stream) != runtime::capture_state::none)
            return rule.give(block, stream), true; // a capture on the current device frees it
        if constexpr (contract::holds<contract::has_used_on, Rule, base::range, stream_ref>)
            if (elsewhere)
                rule.last_used_on(block, stream);
        runtime::device_scope const current(elsewhere ? device : any_device);
        return rule.give(block, stream), true;
    });
    if constexpr (contract::holds<contract::has_wait, Rule>) {
        if (!done && default_may_be_captured(stream, device))
            rule.lose(block);
        else if (!done)
            rule.strand(block);
    }
}

} // namespace pools::detail
} // namespace v0
} // namespace weir
