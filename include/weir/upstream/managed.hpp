// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of managed memory come from?
//
// cudaMallocManaged, attached globally: pages migrate to whoever touches them, host or device. Where they prefer to be can
// be said once for all chunks; prefetch, advise and discard (runtime/managed_memory.hpp) take any bytes of them.
//
// invariant: a chunk is accessible from every device that supports managed memory, and from the host.
// order:     'release' waits for the device.
// cost:      acquire about 50 us; the pages themselves are paid for at the first touch.
// not for:   asking for more than the card has free as a habit: thrashing is slow and can take the GPU down.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/managed_memory.hpp>
#include <weir/runtime/memory_location.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// cudaMallocManaged and cudaFree. Copyable. Any thread may call any member.
class managed {
public:
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = memory_space::managed;
    static constexpr std::size_t granularity = 2 * MiB;

    /// `device`: the device to allocate under; any_device: the one that is current now. `preferred`: where the pages of
    /// all chunks prefer to be (memory_advice::preferred_location). Throws usage_error
    /// where there is no such device, cuda_error.
    explicit managed(int device = any_device, memory_location preferred = memory_location::anywhere())
        : device_(runtime::existing_device(device)), preferred_(preferred) {}

    /// A chunk of `bytes` bytes, or null when there is no room. Blocks. Throws cuda_error, also where the pages cannot be
    /// where they are to prefer to be.
    void* acquire(std::size_t bytes) {
        runtime::device_guard const guard(device_);
        runtime::capture_mode_guard const relaxed;
        void* chunk = nullptr;
        if (runtime::out_of_room(cudaMallocManaged(&chunk, bytes, cudaMemAttachGlobal), "cudaMallocManaged"))
            return nullptr;
        try {
            if (preferred_ != memory_location::anywhere())
                advise(chunk, bytes, memory_advice::preferred_location(preferred_));
        } catch (...) {
            if (!runtime::succeeded(cudaFree(chunk)))
                static_cast<void>(runtime::succeeded(cudaFree(chunk))); // nobody else knows its address: once more
            throw;
        }
        return chunk;
    }

    /// Gives a chunk back. Waits for the device. False: CUDA refused it, and it is still the caller's.
    bool release(void* chunk, std::size_t) noexcept {
        try {
            runtime::capture_mode_guard const relaxed;
            return runtime::succeeded(cudaFree(chunk));
        } catch (...) {
            return false;
        }
    }

    /// What the device and the host have in all, in bytes: pages move between them. SIZE_MAX: not known. A call of CUDA's.
    std::size_t most_bytes() const noexcept {
        std::size_t const host = runtime::host_total_bytes();
        std::size_t const device = runtime::device_total_bytes(device_);
        return device < SIZE_MAX - host ? host + device : SIZE_MAX;
    }

private:
    int device_;
    memory_location preferred_;
};

} // namespace upstream
} // namespace v0
} // namespace weir
