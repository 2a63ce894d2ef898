// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which devices are there, which is current, how does a call run on another one, and how much memory has each?
//
// CUDA keeps a current device per host thread. A pool belongs to one device and must work whichever is current, so its slow
// paths run under a guard that switches and switches back. What is left of a device's memory is asked for reports, once
// something has failed: who has the memory, this pool or somebody else? How much there is in all says what no wait and no
// free will ever make room for.
//
// invariant: after the guard's life the thread's current device is what it was.
// order:     what is left is of a moment that is over. Nothing here breaks a capture.
// cost:      cudaGetDevice (23 ns); cudaSetDevice twice, only where the device differs. Memory: cudaMemGetInfo, tens of
//            microseconds and more; of the host a call of the system.
// not for:   fast paths: allocation from memory already held needs no current device. Nor to find out whether an allocation
//            will succeed: others allocate, too.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <sys/sysinfo.h>
#include <weir/base/error.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/runtime/check.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// The number of this thread's current device. Throws cuda_error.
inline int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// How many devices CUDA sees. Throws cuda_error.
inline int device_count() {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}

/// Whether there may be several devices: so, too, where CUDA does not say.
inline bool may_have_several_devices() noexcept {
    int count = 0;
    return !succeeded(cudaGetDeviceCount(&count)) || count > 1;
}

/// The device of that number, or the current one for any_device. Throws usage_error where there is none, cuda_error.
inline int existing_device(int device) {
    if (device == any_device)
        return current_device();
    if (device < 0)
        throw usage_error("weir: the number of a device is 0 or more, or weir::any_device for the current one");
    auto const count = static_cast<std::size_t>(device_count());
    auto const at = static_cast<std::size_t>(device);
    if (at >= count)
        throw usage_error("weir: there is no device " + base::number_text(at) + "; CUDA sees " +
                          base::count_text(count, " device"));
    return device;
}

/// The device of that number, as for existing_device, whose kernels can use memory of device `owner`. Throws usage_error
/// where there is none or where they cannot, cuda_error.
inline int existing_peer(int device, int owner) {
    int const peer = existing_device(device);
    int able = 1;
    if (peer != owner)
        check(cudaDeviceCanAccessPeer(&able, peer, owner), "cudaDeviceCanAccessPeer");
    if (able == 0)
        throw usage_error("weir: device " + base::number_text(static_cast<std::size_t>(peer)) +
                          " cannot use memory of device " + base::number_text(static_cast<std::size_t>(owner)) +
                          " (cudaDeviceCanAccessPeer); give it a pool of its own, and copy with cudaMemcpyPeerAsync");
    return peer;
}

/// Makes a device current for this thread until the end of the scope.
class device_guard {
public:
    /// `device`: the device, or any_device to leave things as they are. Throws cuda_error.
    explicit device_guard(int device) {
        if (device == any_device)
            return;
        int const before = current_device();
        if (before != device) {
            check(cudaSetDevice(device), "cudaSetDevice");
            before_ = before;
        }
    }
    device_guard(device_guard const&) = delete;
    device_guard& operator=(device_guard const&) = delete;
    ~device_guard() {
        if (before_ != any_device && !succeeded(cudaSetDevice(before_)))
            static_cast<void>(succeeded(cudaSetDevice(before_))); // the caller's next launch goes there: once more
    }

private:
    int before_ = any_device; // the device to go back to; any_device: none
};

namespace detail {
struct device_bytes {
    std::size_t free = SIZE_MAX;
    std::size_t all = SIZE_MAX;
};
inline detail::device_bytes bytes_of_device(int device) noexcept {
    try {
        device_guard const guard(device);
        std::size_t free = 0;
        std::size_t all = 0;
        if (succeeded(cudaMemGetInfo(&free, &all)))
            return {free, all};
    } catch (...) { // a report says what is known
    }
    return {};
}
} // namespace detail

/// The bytes that device number `device` (any_device: the current one) could still hand out; SIZE_MAX where CUDA does not say,
/// which is no error. Never blocks. Any thread.
inline std::size_t device_free_bytes(int device) noexcept {
    return detail::bytes_of_device(device).free;
}

/// The bytes that the device has in all; otherwise the same.
inline std::size_t device_total_bytes(int device) noexcept {
    return detail::bytes_of_device(device).all;
}

/// The bytes of memory that the host has in all, which no page-locked memory exceeds; SIZE_MAX where the system does not say.
/// Never blocks. Any thread.
inline std::size_t host_total_bytes() noexcept {
    struct sysinfo now {};
    return sysinfo(&now) == 0 ? static_cast<std::size_t>(now.totalram) * now.mem_unit : SIZE_MAX;
}

} // namespace runtime
} // namespace v0
} // namespace weir
