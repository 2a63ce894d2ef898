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
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// Gives `block` to the reuse rule of a pool of device number `device`. If CUDA fails, the block is stranded: it has no event,
/// and only 'settle' frees it. Any thread.
template <class Rule>
[[gnu::noinline]] void give_by_default(Rule& rule, base::range block, stream_ref stream, int device) noexcept {
    try {
        bool const elsewhere = runtime::current_device() != device;
        if (elsewhere && runtime::is_capturing(stream))
            return rule.give(block, stream); // a capture on the current device frees it
        if constexpr (contract::holds<contract::has_last_used_on, Rule, base::range, stream_ref>)
            if (elsewhere)
                rule.last_used_on(block, stream);
        runtime::device_scope const current(elsewhere ? device : any_device);
        return rule.give(block, stream);
    } catch (...) { // CUDA failed
    }
    if constexpr (contract::holds<contract::has_strand, Rule>)
        rule.strand(block);
}

} // namespace detail
} // namespace v0
} // namespace weir
