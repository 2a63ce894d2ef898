// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of device memory come from?
//
// cudaMalloc. It takes about 50 us and cudaFree waits for the whole device, so a pool asks rarely and for
// much. The driver maps device memory in pages of 2 MiB; chunks are whole pages, so that what a pool counts as
// reserved is what the device lost.
//
// invariant: every chunk lives on the device that was named, or current, at construction.
// order:     'release' waits for the device (cudaFree does): no work in flight can outlive its bytes.
// cost:      acquire and release about 50 us each.
// not for:   growing in place: see virtual memory.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// cudaMalloc and cudaFree on one device. Copyable. Any thread may call any member.
class device {
public:
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = memory_space::device;
    static constexpr std::size_t granularity = 2 * MiB;

    /// `number`: of the device; any_device: the one that is current now. Throws usage_error where there is no such
    /// device, cuda_error.
    explicit device(int number = any_device) : device_(runtime::existing_device(number)) {}

    /// A chunk of `bytes` bytes, or null when the device has no room. Blocks. Throws cuda_error.
    void* acquire(std::size_t bytes) {
        runtime::device_guard const guard(device_);
        runtime::capture_mode_guard const relaxed;
        void* chunk = nullptr;
        return runtime::out_of_room(cudaMalloc(&chunk, bytes), "cudaMalloc") ? nullptr : chunk;
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

    /// What the device has in all, in bytes; SIZE_MAX: CUDA does not say. A call of CUDA's.
    std::size_t most_bytes() const noexcept { return runtime::device_total_bytes(device_); }

    /// The number of the device.
    int device_number() const noexcept { return device_; }

private:
    int device_;
};

} // namespace upstream
} // namespace v0
} // namespace weir
