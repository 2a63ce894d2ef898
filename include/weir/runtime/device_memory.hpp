// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much memory has the device left?
//
// Asked for reports, once something has failed: who has the memory, this pool or somebody else?
//
// order:     the answer is of a moment that is over; breaks no capture.
// cost:      cudaMemGetInfo, tens of microseconds and more.
// not for:   deciding whether an allocation will succeed: others allocate, too.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/runtime/check.hpp>
#include <weir/runtime/device_guard.hpp>

namespace weir {
inline namespace v0 {

/// The bytes that device `ordinal` (any_device: the current one) could still hand out; SIZE_MAX where CUDA does not say,
/// which is no error. Never blocks. Any thread.
inline std::size_t device_free_bytes(int ordinal) noexcept {
    try {
        device_guard const guard(ordinal);
        std::size_t free = 0;
        std::size_t all = 0;
        if (succeeded(cudaMemGetInfo(&free, &all)))
            return free;
    } catch (...) { // a report says what is known
    }
    return SIZE_MAX;
}

} // namespace v0
} // namespace weir
