// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is passed in the place of a stream, or of a device's number, when there is none?
//
// Memory that the host uses belongs to no stream. A part that belongs to no device, or to the device that is current, has no
// number to name. Each case has a named constant, so that nobody has to explain a null pointer or a -1.
//
// cost:      none.

namespace weir {
inline namespace v0 {

/// Passed as a stream, this means the host: see stream_ref.
struct on_host_t {};
inline constexpr on_host_t on_host{};

/// No particular device. As an argument: the one that is current, or every one, as the function says. As an answer: it may be
/// any of them.
inline constexpr int any_device = -1;

} // namespace v0
} // namespace weir
