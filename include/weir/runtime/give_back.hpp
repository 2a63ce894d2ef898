// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does memory go back to CUDA where no failure can be thrown?
//
// CUDA can refuse to take memory back, as any call can fail. Whoever gives it back is told so and keeps the memory, to offer it
// again later. The call breaks no capture that is under way on other streams.
//
// invariant: where it is refused, the memory is as it was, and no error is left on CUDA's per-thread record.
// order:     cudaFree and cudaFreeHost wait for the device.
// cost:      the call, and two more to leave captures alone.
// not for:   what other streams still use: see driver/driver_pool.hpp.

#include <cuda_runtime_api.h>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// Whether CUDA took memory back. `free()`: calls cudaFree, cudaFreeHost or cudaFreeAsync, and returns its answer.
template <class Free>
bool gave_back(Free const& free) noexcept {
    try {
        capture_mode_scope const relaxed;
        return succeeded(free());
    } catch (...) { // the capture mode could not be set, and CUDA was not asked
        return false;
    }
}

} // namespace runtime
} // namespace v0
} // namespace weir
