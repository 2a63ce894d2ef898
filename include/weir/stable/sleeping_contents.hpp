// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What becomes of contents while their memory is away?
//
// Most are copied to the host and back. What a program can make anew it drops, such as a cache. What it never changes, such as
// weights, it needs to copy to the host only once: the copy is kept.
//
// cost:      'constant' keeps as much host memory as the contents have, also while they are on the device.
// not for:   where they are kept: that is the sleep_group's pool.

#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace stable {

/// The second argument of sleep_group::suspend.
enum class contents : unsigned char {
    save,     ///< they are copied to host memory, and back
    constant, ///< the same, and the copy is kept: a later sleep with 'constant' copies nothing, since nothing was changed
    drop      ///< they are lost
};

} // namespace stable
} // namespace v0
} // namespace weir
