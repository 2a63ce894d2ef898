// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of device memory come from?
//
// From cudaMalloc. A call takes about 50 us, and cudaFree waits for the whole device, so a pool asks rarely and for much. The
// driver maps device memory in pages of 2 MiB. Chunks are whole pages, so the bytes that a pool counts as reserved are the
// bytes that the device lost.
//
// invariant: every chunk is on the device that was named at construction, or was current then.
// order:     'release' waits for the device, as cudaFree does, so no work can use the bytes after that.
// cost:      acquire and release take about 50 us each.
// not for:   growing in place: see upstream::virtual_memory.

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

    /// `number`: the device's number; any_device: the device that is current at this call. Throws usage_error if there is no
    /// such device; cuda_error.
    explicit device(int number = any_device) : device_(runtime::existing_device(number)) {}

    /// A chunk of `bytes` bytes, or null when the device has no room. Blocks. Throws cuda_error.
    void* acquire(std::size_t bytes) {
        runtime::device_scope const there(device_);
        runtime::capture_mode_scope const relaxed;
        void* chunk = nullptr;
        return runtime::out_of_room(cudaMalloc(&chunk, bytes), "cudaMalloc") ? nullptr : chunk;
    }

    /// Gives a chunk back. Waits for the device. Returns false if CUDA refused; the chunk is then still the caller's.
    bool release(void* chunk, std::size_t) noexcept {
        try {
            runtime::capture_mode_scope const relaxed;
            return runtime::succeeded(cudaFree(chunk));
        } catch (...) {
            return false;
        }
    }

    /// All memory that the device has, in bytes; SIZE_MAX: CUDA does not say. Makes a CUDA call.
    std::size_t most_bytes() const noexcept { return runtime::device_total_bytes(device_); }

    /// The number of the device.
    int device_number() const noexcept { return device_; }

private:
    int device_;
};

} // namespace upstream
} // namespace v0
} // namespace weir
