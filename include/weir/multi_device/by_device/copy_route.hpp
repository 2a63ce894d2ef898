// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which way does a copy between two devices take?
//
// CUDA does not tell of a copy, but it tells to which devices mapped memory is open, and a copy takes the link where the memory
// of one side at least is open to the other side (seen on two H200). Of other memory it says 'closed', whatever copies do, so
// memory is asked first whether it is mapped: whether it has a handle (route.hpp says the rest).
//
// cost:      a look-up of the driver's functions for each mapped_access; then four to six questions.
// not for:   memory of cudaMalloc, or of CUDA's own pools: 'up_to_cuda' is the answer.

#include <cuda_runtime_api.h>
#include <weir/base/try_twice.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

/// The way of a copy.
enum class copy_route : unsigned char {
    no_copy,          ///< there was none
    same_device,      ///< it stays on the device
    link,             ///< from device to device, by NVLink or PCIe
    through_the_host, ///< through the host's memory: the devices cannot reach each other, or the memory is not open
    up_to_cuda        ///< one of these two, CUDA does not say: no side is open, and one is cudaMalloc's or a driver_pool's
};

/// What CUDA says of memory that was mapped.
class mapped_access {
public:
    enum class answer : unsigned char { closed, open, unknown };

    mapped_access() noexcept {
        using runtime::detail::driver_functions;
        driver_functions::find("cuMemGetAccess", get_access_);
        driver_functions::find("cuMemRetainAllocationHandle", retain_);
        driver_functions::find("cuMemRelease", release_);
    }

    /// Whether a device may use the memory at `p`; unknown if it is not mapped memory, or CUDA fails.
    answer of(void const* p, int device) const noexcept {
        using runtime::detail::ask_driver;
        unsigned long long handle = 0;
        if (!get_access_ || !retain_ || !release_ || ask_driver(retain_, &handle, const_cast<void*>(p)) != 0)
            return answer::unknown;
        base::try_twice([&] { return ask_driver(release_, handle) == 0; });
        struct {
            int type = 1; // CU_MEM_LOCATION_TYPE_DEVICE
            int id = 0;
        } place;
        place.id = device;
        unsigned long long flags = 0;
        auto const at = reinterpret_cast<unsigned long long>(p);
        if (ask_driver(get_access_, &flags, static_cast<void const*>(&place), at) != 0)
            return answer::unknown;
        return flags == 0 ? answer::closed : answer::open; // CU_MEM_ACCESS_FLAGS_PROT_NONE
    }

    /// The way of a copy to memory of device `here` from memory of device `there`.
    copy_route route_of(void const* to, int here, void const* from, int there) const noexcept {
        if (here == there)
            return copy_route::same_device;
        answer const source = of(from, here), target = of(to, there);
        if (source == answer::open || target == answer::open)
            return copy_route::link;
        if (source == answer::closed && target == answer::closed)
            return copy_route::through_the_host;
        try {
            return runtime::can_reach(here, there) ? copy_route::up_to_cuda : copy_route::through_the_host;
        } catch (...) {
            return copy_route::up_to_cuda;
        }
    }

private:
    int (*get_access_)(unsigned long long*, void const*, unsigned long long) = nullptr;
    int (*retain_)(unsigned long long*, void*) = nullptr;
    int (*release_)(unsigned long long) = nullptr;
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
