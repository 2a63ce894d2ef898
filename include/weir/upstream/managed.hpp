// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of managed memory come from?
//
// From cudaMallocManaged, attached globally: pages migrate to whoever touches them, host or device. A preferred location can
// be set once for all chunks. prefetch, advise and discard (runtime/managed_memory.hpp) work on any part of a chunk.
//
// invariant: a chunk is accessible from every device that supports managed memory, and from the host.
// order:     'release' waits for the device.
// cost:      acquire about 50 us; the pages themselves are paid for at the first touch.
// not for:   asking regularly for more than the device has free: pages then move back and forth all the time, which is slow
//            and can take the GPU down.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/give_back.hpp>
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

    /// `device`: the device that is current for the allocation; any_device: the one that is current at this call.
    /// `preferred`: the preferred location of all chunks' pages (memory_advice::preferred_location). Throws usage_error if
    /// there is no such device; cuda_error.
    explicit managed(int device = any_device, memory_location preferred = memory_location::anywhere())
        : device_(runtime::existing_device(device)), preferred_(preferred) {}

    /// A chunk of `bytes` bytes, or null when there is no room. Blocks. Throws cuda_error, also if the device has no managed
    /// memory, or CUDA refuses the preferred location.
    void* acquire(std::size_t bytes) {
        runtime::device_scope const current(device_);
        runtime::capture_mode_scope const relaxed;
        void* chunk = nullptr;
        if (runtime::out_of_room(cudaMallocManaged(&chunk, bytes, cudaMemAttachGlobal), "cudaMallocManaged",
                                 "this device has no managed memory; use pinned_pool or device_pool"))
            return nullptr;
        try {
            if (preferred_ != memory_location::anywhere())
                runtime::advise(chunk, bytes, runtime::memory_advice::preferred_location(preferred_));
        } catch (...) {
            base::try_twice([&] { return runtime::succeeded(cudaFree(chunk)); }); // nobody else knows its address
            throw;
        }
        return chunk;
    }

    /// Gives a chunk back. Waits for the device. Returns false if CUDA refused; the chunk is then still the caller's.
    bool release(void* chunk, std::size_t) noexcept {
        return runtime::gave_back([&] { return cudaFree(chunk); });
    }

    /// All memory of the device and the host together, in bytes, since pages move between them. SIZE_MAX: not known. Makes a
    /// CUDA call.
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
