// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which way can a copy from one device to another take, and which one does it take?
//
// Over the link between them, if CUDA says that they can reach each other's memory ('route_between'), and if the memory of
// one side at least is open to the other device. Mapped memory (upstream::virtual_memory, and so most of weir's pools) is open
// to the devices that it was opened to: 'per_device' does so, and 'enable_access_from'. Of cudaMalloc's memory CUDA does not
// tell. What is closed on both sides CUDA stages through the host's memory by itself, which is right and slower (two H200: 38
// GB/s in place of 387).
//
// cost:      'route_between' a question to CUDA, 'route_of' four to six.
// not for:   kernels that use another device's memory: open it.

#include <weir/multi_device/by_device/copy_route.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// The way of a copy.
using route = detail::copy_route;

/// The best way that there can be from device `from` to device `to`: 'link' where memory that is open takes the link. Throws
/// usage_error if there is no such device, cuda_error. Never blocks. Any thread.
inline route route_between(int from, int to) {
    from = runtime::existing_device(from);
    to = runtime::existing_device(to);
    if (from == to)
        return route::same_device;
    return runtime::can_reach(to, from) ? route::link : route::through_the_host;
}

/// The way that a copy takes to the memory at `to`, of device `here`, from that at `from`, of device `there`. Throws
/// usage_error if there is no such device, cuda_error. Never blocks. Any thread.
inline route route_of(void const* to, int here, void const* from, int there) {
    here = runtime::existing_device(here);
    there = runtime::existing_device(there);
    return detail::mapped_access().route_of(to, here, from, there);
}

} // namespace multi_device
} // namespace v0
} // namespace weir
