// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does the host wait for a stream, or for all work on a device, without breaking anybody's capture?
//
// A stream: cudaStreamSynchronize fails while any other thread captures a stream in global mode, and it breaks that capture,
// even if the two have nothing to do with each other. In a thread of relaxed capture mode it does neither, so that mode is
// set around it. It also breaks the capture of a blocking stream if it waits for the legacy stream: then the device is waited
// for instead. A stream that is captured itself is refused.
//
// A device: cudaDeviceSynchronize breaks every capture that is under way on the device. cudaFree waits just as long, also for
// the work of streams that have been destroyed, and in relaxed capture mode it leaves captures alone (a probe of the
// conformance suite; CUDA 13.0). So 'wait_for_device' allocates one byte and frees it. On a machine of one device it is a
// byte of managed memory, which takes no room on the device before it is touched. On other machines it is a byte of the
// device's own memory, since managed memory is made known to every device in use; it is managed if the device has not even one
// byte left. Only where there is neither does it call cudaDeviceSynchronize.
//
// order:    what was enqueued on the stream, or on the device, before the call is over when it returns.
// cost:     a stream: four driver calls, and the wait. A device: two, and the wait; all in all 17 to 40 us for an idle device
//           of a machine of one H200 (with a byte of the device's own memory 80 to 95 us, or 5 while another small block of
//           cudaMalloc's lives), and 110 us on one of two H200 (with a managed byte 1,000 us).
// errors:   if one of several devices fails, the others are waited for all the same. A device that has failed for good fails
//           each wait for all devices, as it fails each call of its own, until the process is restarted.
// not for:  a host thread for which the device's work itself waits, as a host function does: both would wait for each other
//           for ever. With any_device this holds for the work of each device in use. For one event: see event.hpp. For
//           trimming CUDA's own memory pools: they do not notice that cudaFree waited, and trim nothing (a probe of the
//           conformance suite).

#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

namespace runtime {

namespace detail {
// Calls visit() for each device from `first` to before `last` on which there may be work, while that device is current.
template <class Visit>
void visit_ready(int first, int last, Visit const& visit) {
    for (int each = first; each < last; ++each)
        try {
            if (runtime::detail::is_ready(each)) {
                runtime::device_scope const there(each);
                visit();
            }
        } catch (...) { // the remaining devices come first; their failures are not reported
            try {
                runtime::detail::visit_ready(each + 1, last, visit);
            } catch (...) {
            }
            throw;
        }
}
} // namespace detail

/// Calls visit() while device number `device` is current. any_device: it does so for each device on which there may be work,
/// that is, on which CUDA is ready; also for those after one that fails. It makes CUDA ready on no other device than the
/// current one. Throws cuda_error, and what the first visit that fails throws.
template <class Visit>
void visit_devices(int device, Visit const& visit) {
    if (device == any_device)
        return runtime::detail::visit_ready(0, runtime::device_count(), visit);
    runtime::device_scope const there(device);
    visit();
}

/// Blocks until all work on the device is done. any_device: on every device that the process uses, even if one of them fails.
/// Any thread. Throws cuda_error.
inline void wait_for_device(int device) {
    bool const alone = runtime::device_count() == 1;
    runtime::capture_mode_scope const relaxed;
    runtime::visit_devices(device, [&] {
        void* p = nullptr;
        auto const managed = [&] { return runtime::succeeded(cudaMallocManaged(&p, 1, cudaMemAttachGlobal)); };
        if (!(alone && managed()) && runtime::out_of_room(cudaMalloc(&p, 1), "cudaMalloc") && (alone || !managed()))
            return check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        cudaError_t const error = cudaFree(p);
        if (!runtime::succeeded(error))
            static_cast<void>(runtime::succeeded(cudaFree(p))); // once more, so that nothing leaks
        check_cuda(error, "cudaFree");
    });
}

} // namespace runtime

/// Blocks the calling thread until all work on `stream` is done. For the host it returns at once. While a blocking stream is
/// captured, it waits for all work of the current device in the place of the legacy stream. Breaks no capture. Any thread.
/// Throws usage_error if `stream` itself is captured; cuda_error.
inline void synchronize(stream_ref stream) {
    if (stream.is_host())
        return;
    if (runtime::is_capturing(stream)) {
        if (!runtime::is_legacy(stream))
            throw usage_error("weir: the host cannot wait for a stream that is being captured into a graph, whose work runs "
                              "only when the graph is launched; end the capture first");
        return runtime::wait_for_device(runtime::current_device());
    }
    runtime::capture_mode_scope const relaxed;
    check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

} // namespace v0
} // namespace weir
