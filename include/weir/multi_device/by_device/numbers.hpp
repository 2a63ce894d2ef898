// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which part of an object is a device's, and how does a call reach each of its parts?
//
// What has a part on each device keeps the parts in the devices' order: that of device i is the i-th.
//
// invariant: a part that is not there is never reached, also not in an object that was moved from and has none.
// cost:      a comparison; for any_device, and before a number is refused, a question to CUDA.
// not for:   devices that are no part of the object.

#include <cstddef>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

/// The place of a device's part among `count`; any_device: of the current device. Throws usage_error if there is no such
/// device or no such part, cuda_error.
inline std::size_t place_of(int device, int count) {
    if (device < 0 || device >= count)
        device = runtime::existing_device(device);
    if (device >= count)
        throw usage_error("weir: this object has nothing on device " + base::number_text(static_cast<std::size_t>(device)) +
                          ", since it was moved from; use the object that it was moved to");
    return static_cast<std::size_t>(device);
}

/// Calls visit(i) for each number from `first` to before `count`, also after one that throws. Throws what the first one threw.
template <class Visit>
void visit_all(int first, int count, Visit const& visit) {
    for (int i = first; i < count; ++i)
        try {
            visit(i);
        } catch (...) {
            try {
                detail::visit_all(i + 1, count, visit);
            } catch (...) { // the first one says enough
            }
            throw;
        }
}

/// Throws usage_error if `stream`, which the caller named for device `device`, is the host or a stream of another device. A
/// default stream is each device's own, and a captured one may not be asked. Throws cuda_error.
inline void require_stream_of(int device, stream_ref stream) {
    if (stream.is_host())
        throw usage_error("weir: the work of a device needs a stream, and 'on_host' is none; name a stream of device " +
                          base::number_text(static_cast<std::size_t>(device)));
    if (runtime::is_default_stream(stream) || runtime::is_capturing(stream))
        return;
    int const of = runtime::device_of(stream);
    if (of != device)
        throw usage_error("weir: the stream that was named for device " + base::number_text(static_cast<std::size_t>(device)) +
                          " is one of device " + base::number_text(static_cast<std::size_t>(of)) +
                          "; 'streams[i]' has to be a stream of device i");
}

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
