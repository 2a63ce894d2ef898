// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which device is current, and how does a call run on another one?
//
// CUDA keeps a current device per host thread. A pool belongs to one device and must work whichever is
// current, so its slow paths run under a guard that switches and switches back.
//
// invariant: after the guard's life the thread's current device is what it was.
// cost:      cudaGetDevice (23 ns); cudaSetDevice twice, only where the device differs.
// not for:   fast paths: allocation from memory already held needs no current device.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/contracts.hpp>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>
#include <weir/runtime/check.hpp>

namespace weir {
inline namespace v0 {

/// Stands for 'whichever device is current' where an ordinal is expected.
inline constexpr int any_device = -1;

/// The ordinal of this thread's current device. Throws cuda_error.
inline int current_device() {
    int ordinal = 0;
    check(cudaGetDevice(&ordinal), "cudaGetDevice");
    return ordinal;
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

/// The device of that ordinal, or the current one for any_device. Throws usage_error where there is none, cuda_error.
inline int existing_device(int ordinal) {
    if (ordinal == any_device)
        return current_device();
    if (ordinal < 0)
        throw usage_error("weir: the ordinal of a device is 0 or more, or weir::any_device for the current one");
    auto const count = static_cast<std::size_t>(device_count());
    auto const at = static_cast<std::size_t>(ordinal);
    if (at >= count)
        throw usage_error("weir: there is no device " + number_text(at) + "; CUDA sees " + count_text(count, " device"));
    return ordinal;
}

/// The device of that ordinal, as for existing_device, whose kernels can use memory of device `owner`. Throws usage_error
/// where there is none or where they cannot, cuda_error.
inline int existing_peer(int ordinal, int owner) {
    int const peer = existing_device(ordinal);
    int able = 1;
    if (peer != owner)
        check(cudaDeviceCanAccessPeer(&able, peer, owner), "cudaDeviceCanAccessPeer");
    if (able == 0)
        throw usage_error("weir: device " + number_text(static_cast<std::size_t>(peer)) + " cannot use memory of device " +
                          number_text(static_cast<std::size_t>(owner)) +
                          " (cudaDeviceCanAccessPeer); give it a pool of its own, and copy with cudaMemcpyPeerAsync");
    return peer;
}

/// The device of a part that says one with `ordinal()`; any_device for others.
template <class Part>
int ordinal_of(Part const& part) noexcept {
    if constexpr (contracts::holds<contracts::says_ordinal, Part>)
        return part.ordinal();
    else
        return any_device;
}

/// Makes a device current for this thread until the end of the scope.
class device_guard {
public:
    /// `ordinal`: the device, or any_device to leave things as they are. Throws cuda_error.
    explicit device_guard(int ordinal) {
        if (ordinal == any_device)
            return;
        int const before = current_device();
        if (before != ordinal) {
            check(cudaSetDevice(ordinal), "cudaSetDevice");
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

} // namespace v0
} // namespace weir
