// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which way can a copy from one device to another take?
//
// Over the link between them where CUDA says that they can reach each other's memory. Otherwise it takes the copy through the
// host's memory by itself, which is right and slower. CUDA does not say afterwards which way a copy took: where it may go over
// the link, it may still go through the host if the memory is not open to the other device. Its speed tells.
//
// cost:      a question to CUDA.
// not for:   kernels that use another device's memory: open it ('enable_access_from' of an upstream or a driver_pool).

#include <cuda_runtime_api.h>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// The way of a copy.
enum class route : unsigned char {
    same_device,      ///< it stays on the device
    link,             ///< from device to device, by NVLink or PCIe: CUDA can
    through_the_host, ///< through the host's memory
};

/// The way that is open to a copy from device `from` to device `to`. Throws usage_error if there is no such device, cuda_error.
/// Never blocks. Any thread.
inline route route_between(int from, int to) {
    from = runtime::existing_device(from);
    to = runtime::existing_device(to);
    if (from == to)
        return route::same_device;
    int able = 0;
    check_cuda(cudaDeviceCanAccessPeer(&able, to, from), "cudaDeviceCanAccessPeer");
    return able != 0 ? route::link : route::through_the_host;
}

} // namespace multi_device
} // namespace v0
} // namespace weir
