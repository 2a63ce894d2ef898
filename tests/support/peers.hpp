// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Uses memory on devices that are not current, for tests of what other devices were let into.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <support/every_schedule.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>

namespace support {

/// Whether there are devices 0 and 1, and each can use the other's memory.
inline bool two_peers() {
    int devices = 0;
    weir::check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    int there = 0;
    int back = 0;
    if (devices >= 2) {
        weir::check_cuda(cudaDeviceCanAccessPeer(&there, 0, 1), "cudaDeviceCanAccessPeer");
        weir::check_cuda(cudaDeviceCanAccessPeer(&back, 1, 0), "cudaDeviceCanAccessPeer");
    }
    return there != 0 && back != 0;
}

/// On the simulated device: there are two devices while it lives. False: there are no two that reach each other.
class two_devices {
public:
    explicit operator bool() const { return two_peers(); }

private:
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world world_{simulated_cuda::config{}.with_devices(2), report_all};
#endif
};

/// Device `device` writes the bytes, and is done. No copy by peers, which would get by without access.
inline void fill_from(int device, void* at, std::size_t bytes) {
    weir::runtime::device_scope const there(device);
    scoped_stream const s;
    weir::check_cuda(cudaMemsetAsync(at, 1 + device, bytes, s), "cudaMemsetAsync");
    weir::check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

} // namespace support
