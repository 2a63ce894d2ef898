// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of managed memory come from?
//
// cudaMallocManaged, attached globally: pages migrate to whoever touches them, host or device.
//
// invariant: a chunk is accessible from every device that supports managed memory, and from the host.
// order:     'release' waits for the device.
// cost:      acquire about 50 us; the pages themselves are paid for at the first touch.
// not for:   asking for more than the card has free as a habit: thrashing is slow and can take the GPU down.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/device_guard.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// cudaMallocManaged and cudaFree. Copyable. Any thread may call any member.
class managed {
public:
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = memory_space::managed;
    static constexpr std::size_t granularity = 2 * MiB;

    /// `ordinal`: the device to allocate under; any_device: the one that is current now. Throws cuda_error.
    explicit managed(int ordinal = any_device) : ordinal_(ordinal == any_device ? current_device() : ordinal) {}

    /// A chunk of `bytes` bytes, or null when there is no room. Blocks. Throws cuda_error.
    void* acquire(std::size_t bytes) {
        device_guard const guard(ordinal_);
        capture_mode_guard const relaxed;
        void* chunk = nullptr;
        return out_of_room(cudaMallocManaged(&chunk, bytes, cudaMemAttachGlobal), "cudaMallocManaged") ? nullptr
                                                                                                     : chunk;
    }

    /// Gives a chunk back. Waits for the device. False: CUDA refused it, and it is still the caller's.
    bool release(void* chunk, std::size_t) noexcept {
        try {
            capture_mode_guard const relaxed;
            return succeeded(cudaFree(chunk));
        } catch (...) {
            return false;
        }
    }

private:
    int ordinal_;
};

} // namespace upstream
} // namespace v0
} // namespace weir
