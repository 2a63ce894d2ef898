// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much memory is there, and how much is left?
//
// What is left is asked for reports, once something has failed: who has the memory, this pool or somebody else? How much
// there is in all says what no wait and no free will ever make room for.
//
// order:     what is left is of a moment that is over; breaks no capture.
// cost:      cudaMemGetInfo, tens of microseconds and more; of the host a call of the system.
// not for:   deciding whether an allocation will succeed: others allocate, too.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <sys/sysinfo.h>
#include <weir/base/memory_space.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/device_guard.hpp>

namespace weir {
inline namespace v0 {

namespace detail {
struct device_bytes {
    std::size_t free = SIZE_MAX;
    std::size_t all = SIZE_MAX;
};
inline device_bytes bytes_of_device(int ordinal) noexcept {
    try {
        device_guard const guard(ordinal);
        std::size_t free = 0;
        std::size_t all = 0;
        if (succeeded(cudaMemGetInfo(&free, &all)))
            return {free, all};
    } catch (...) { // a report says what is known
    }
    return {};
}
} // namespace detail

/// The bytes that device `ordinal` (any_device: the current one) could still hand out; SIZE_MAX where CUDA does not say,
/// which is no error. Never blocks. Any thread.
inline std::size_t device_free_bytes(int ordinal) noexcept {
    return detail::bytes_of_device(ordinal).free;
}

/// The bytes that the device has in all; otherwise the same.
inline std::size_t device_total_bytes(int ordinal) noexcept {
    return detail::bytes_of_device(ordinal).all;
}

/// The bytes of memory that the host has in all, which no page-locked memory exceeds; SIZE_MAX where the system does not say.
/// Never blocks. Any thread.
inline std::size_t host_total_bytes() noexcept {
    struct sysinfo now {};
    return sysinfo(&now) == 0 ? static_cast<std::size_t>(now.totalram) * now.mem_unit : SIZE_MAX;
}

} // namespace v0
} // namespace weir
