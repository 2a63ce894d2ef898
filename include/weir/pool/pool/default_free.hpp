// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a block freed on a default stream?
//
// A default stream is a name: it means the current device's stream, whichever device the block is of. The block's uses may be
// on the pool's device as well. So the free waits for both: it is made on the pool's device, behind the last use on the other.
//
// order:     behind what is enqueued so far on the default streams of both devices.
// cost:      one more event where another device is current.
// not for:   streams of one's own, which belong to one device.

#include <weir/base/range.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// Gives `block` to a reuse rule of a pool of device number `device`. Where CUDA does not answer, only 'settle' frees it. Any
/// thread.
template <class Rule>
[[gnu::noinline]] void give_by_default(Rule& rule, base::range block, stream_ref stream, int device) noexcept {
    try {
        bool const elsewhere = runtime::current_device() != device;
        if (elsewhere && runtime::is_capturing(stream))
            return rule.give(block, stream); // by a capture there
        if constexpr (contract::holds<contract::notes_last_uses, Rule, base::range, stream_ref>)
            if (elsewhere)
                rule.last_used_on(block, stream);
        runtime::device_guard const guard(device);
        return rule.give(block, stream);
    } catch (...) { // CUDA does not answer
    }
    if constexpr (contract::holds<contract::strands, Rule>)
        rule.strand(block);
}

} // namespace detail
} // namespace v0
} // namespace weir
