// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host wait for a stream, or for all work on a device, and break nobody's capture?
//
// cudaStreamSynchronize fails while any other thread's stream is captured in global mode, and breaks that capture, however
// little the two have to do with each other. In a thread of relaxed capture mode it does neither. cudaDeviceSynchronize
// breaks every capture that is under way on the device. cudaFree waits just as long, also for the work of streams that have
// been destroyed, and in a thread of relaxed capture mode it leaves captures alone (a probe of the conformance suite; CUDA
// 13.0). What it frees is a byte: of managed memory on a machine of one device, since that has no room there before it is
// touched; of the device's own on others, where managed memory is made known to every device in use. Only where the device
// has no byte left either is cudaDeviceSynchronize called.
//
// order:    what was enqueued on the stream, or the device, before the call is over after it.
// cost:     a stream: three driver calls, and the wait. A device: two, and the wait: 17 to 40 us on a machine of one H200 (a
//           byte of the device's: 80 to 95, and 5 while another small block of cudaMalloc's lives), 110 on one of two (a
//           managed byte: 1,000).
// errors:   the other devices are waited for all the same where one fails. One that is lost fails each wait for all, as it
//           fails each call of its own, until the process is restarted.
// not for:  a thread that the device's work waits for, with any_device that of any device in use: it would hang. One event:
//           see event.hpp. CUDA's own memory pools: they do not notice that cudaFree waited, and trim nothing (a probe of
//           the conformance suite).

#include <cuda_runtime_api.h>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Blocks the calling thread until all work on `stream` is done; on the host there is nothing to wait for. Any thread.
/// Throws cuda_error, also where `stream` itself is captured, which breaks its capture.
inline void synchronize(stream_ref stream) {
    if (stream.is_host())
        return;
    runtime::capture_mode_guard const relaxed;
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

namespace runtime {

namespace detail {
// Calls visit() for each device from `first` to before `last` on which there may be work.
template <class Visit>
void visit_ready(int first, int last, Visit const& visit) {
    for (int each = first; each < last; ++each)
        try {
            if (runtime::detail::is_ready(each)) {
                runtime::device_guard const guard(each);
                visit();
            }
        } catch (...) { // the others first; of their failures nobody is told
            try {
                runtime::detail::visit_ready(each + 1, last, visit);
            } catch (...) {
            }
            throw;
        }
}
} // namespace detail

/// Calls visit() while device number `device` is current; any_device: each on which there may be work, since CUDA is ready
/// there, also behind one that fails. Makes no device ready but the current one. Throws cuda_error, and what the first visit
/// that fails throws.
template <class Visit>
void visit_devices(int device, Visit const& visit) {
    if (device == any_device)
        return runtime::detail::visit_ready(0, runtime::device_count(), visit);
    runtime::device_guard const guard(device);
    visit();
}

/// Blocks until all work on the device is done; any_device: on every one that the process uses, also
/// where one of them fails. Any thread. Throws cuda_error.
inline void wait_for_device(int device) {
    bool const alone = runtime::device_count() == 1;
    runtime::capture_mode_guard const relaxed;
    runtime::visit_devices(device, [&] {
        void* p = nullptr;
        bool const managed = alone && runtime::succeeded(cudaMallocManaged(&p, 1, cudaMemAttachGlobal));
        if (!managed && runtime::out_of_room(cudaMalloc(&p, 1), "cudaMalloc"))
            return check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        cudaError_t const error = cudaFree(p);
        if (!runtime::succeeded(error))
            static_cast<void>(runtime::succeeded(cudaFree(p))); // once more, so that nothing leaks
        check(error, "cudaFree");
    });
}

} // namespace runtime
} // namespace v0
} // namespace weir
