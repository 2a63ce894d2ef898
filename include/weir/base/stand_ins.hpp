// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What stands for a stream, or a device, where there is none?
//
// Memory that the host uses belongs to no stream, and a part that belongs to no device, or to whichever is current, has no
// number to name. Each has a word of its own, so that no null pointer and no -1 has to be explained.
//
// cost:      none.

namespace weir {
inline namespace v0 {

/// Stands where a stream would, and means the host: see stream_ref.
struct on_host_t {};
inline constexpr on_host_t on_host{};

/// Stands for 'whichever device is current' where a device's number is expected.
inline constexpr int any_device = -1;

} // namespace v0
} // namespace weir
