// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which devices are there, which is current, how does a call run on another one, and how much memory has each?
//
// CUDA keeps a current device for each host thread. A pool belongs to one device and must work whichever is current, so its
// slow paths run in a scope that switches to the pool's device and back. After a failure a report asks how much memory a
// device has left, since that tells who holds it: this pool or somebody else. How much the device has in total tells what no
// wait and no free will ever make room for.
//
// invariant: when the scope ends, the thread's current device is what it was before, or stderr says that it is not.
// order:     the memory that is left is that of a past moment. Nothing here breaks a capture.
// cost:      cudaGetDevice (23 ns), and cudaSetDevice twice if the device differs. Memory left: cudaMemGetInfo, tens of
//            microseconds or more; for the host, a system call.
// not for:   fast paths: allocation from memory that is already held needs no current device. Nor for finding out whether an
//            allocation will succeed, since others allocate, too.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <sys/sysinfo.h>
#include <weir/base/error.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/driver_calls.hpp>

namespace weir {
inline namespace v0 {
namespace runtime {

/// The number of this thread's current device. Throws cuda_error.
inline int current_device() {
    int device = 0;
    check_cuda(detail::query_device(&device), "cudaGetDevice");
    return device;
}

/// How many devices CUDA sees. Throws cuda_error.
inline int device_count() {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}

/// Whether there may be several devices. If CUDA does not say how many there are: yes.
inline bool may_have_several_devices() noexcept {
    int count = 0;
    return !succeeded(cudaGetDeviceCount(&count)) || count > 1;
}

/// The device of that number; the current one for any_device. Throws usage_error if there is none of that number, cuda_error.
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

/// Whether kernels of a device can use memory of device `owner`, once that is open to them. Throws cuda_error.
inline bool can_reach(int device, int owner) {
    int able = 1;
    if (device != owner)
        check_cuda(cudaDeviceCanAccessPeer(&able, device, owner), "cudaDeviceCanAccessPeer");
    return able != 0;
}
/// Whether that is CUDA's refusal to open memory to another device, and no failure.
constexpr bool refuses_peers(cudaError_t answer) noexcept {
    return answer == cudaErrorNotSupported || answer == cudaErrorNotPermitted || answer == cudaErrorInvalidValue ||
           answer == cudaErrorInvalidDevice || answer == cudaErrorPeerAccessUnsupported || answer == cudaErrorTooManyPeers;
}

/// The device of that number, as for existing_device. Its kernels can use memory of device `owner`. Throws usage_error if
/// they cannot or if there is no such device, cuda_error.
inline int existing_peer(int device, int owner) {
    int const peer = existing_device(device);
    if (!can_reach(peer, owner))
        throw usage_error("weir: device " + base::number_text(static_cast<std::size_t>(peer)) +
                          " cannot use memory of device " + base::number_text(static_cast<std::size_t>(owner)) +
                          " (cudaDeviceCanAccessPeer); give it a pool of its own, and copy with cudaMemcpyPeerAsync");
    return peer;
}

/// Makes a device current for this thread until the end of the scope.
class device_scope {
public:
    /// `device`: the device; any_device: nothing is switched. Throws cuda_error.
    explicit device_scope(int device) {
        if (device == any_device)
            return;
        before_ = current_device();
        if (before_ != device) {
            check_cuda(cudaSetDevice(device), "cudaSetDevice");
            switched_ = true;
        }
    }
    device_scope(device_scope const&) = delete;
    device_scope& operator=(device_scope const&) = delete;
    /// If CUDA refuses to switch back, and refuses again, a line on stderr says so.
    ~device_scope() {
        if (switched_ && !base::try_twice([&] { return succeeded(cudaSetDevice(before_)); }))
            tell_of(before_); // the caller's next launch goes elsewhere
    }

private:
    [[gnu::noinline, gnu::cold]] static void tell_of(int device) noexcept {
        std::fprintf(stderr,
                     "weir: CUDA did not make device %d this thread's current device again (cudaSetDevice failed twice); call "
                     "cudaSetDevice before the next launch or allocation of this thread\n",
                     device);
    }

    bool switched_ = false;
    int before_ = 0; // where to go back to, if switched
};

namespace detail {
struct device_bytes {
    std::size_t free = SIZE_MAX;
    std::size_t all = SIZE_MAX;
};
inline detail::device_bytes bytes_of_device(int device) noexcept {
    try {
        device_scope const there(device);
        std::size_t free = 0;
        std::size_t all = 0;
        if (succeeded(cudaMemGetInfo(&free, &all)))
            return {free, all};
    } catch (...) { // a report says only what is known
    }
    return {};
}
} // namespace detail

/// The bytes that device number `device` (any_device: the current one) could still hand out. SIZE_MAX if CUDA does not say,
/// which is no error. Never blocks. Any thread.
inline std::size_t device_free_bytes(int device) noexcept {
    return detail::bytes_of_device(device).free;
}

/// The bytes that the device has in total. Otherwise as device_free_bytes.
inline std::size_t device_total_bytes(int device) noexcept {
    return detail::bytes_of_device(device).all;
}

/// The bytes of memory that the host has in total; there can be no more page-locked memory than that. SIZE_MAX if the system
/// does not say. Never blocks. Any thread.
inline std::size_t host_total_bytes() noexcept {
    struct sysinfo now {};
    return sysinfo(&now) == 0 ? static_cast<std::size_t>(now.totalram) * now.mem_unit : SIZE_MAX;
}

} // namespace runtime
} // namespace v0
} // namespace weir
