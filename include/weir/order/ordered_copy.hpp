// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are bytes copied between the memory of two owners with different streams, in the right order?
//
// The copy comes after what either stream did so far, and before what either does next. As a rule the target's stream makes
// the copy. Memory of two devices need not be open to either device: it is copied with cudaMemcpyPeerAsync. A target that
// lies on no device (managed) is filled by the source's stream, if the source lies on a device.
//
// invariant: if this throws, nothing was enqueued, or what was enqueued is finished (unless CUDA does not answer at all). In a
//            capture the graph may keep the copy, and what the other stream does later does not come after it.
// order:     after the work on both streams so far, before all later work on both.
// cost:      on one stream that of the copy; on two streams also two events, about 2 us.
// not for:   copies that the host makes.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace order {

inline constexpr char const* if_no_such_memory =
    "the source or the target is not live memory of that size, or lies on a device whose memory the current one cannot use; "
    "check both, or open the memory ('enable_access_from')";

/// Copies `bytes` bytes from `from` to `to`. `there`: the device of the source (any_device: it lies on none, or on the host).
/// `source`: the stream that works with the source. `here` and `target`: the same for `to`. Blocks only for room in a full
/// queue, if the streams could not be ordered after the copy was enqueued, and for host memory that is not page-locked. Any
/// thread. Throws cuda_error, and usage_error if only one of the streams is captured, or they are captured into different
/// graphs.
inline void copy_in_order(void* to, int here, order::placed_stream const& target, void const* from, int there,
                          order::placed_stream const& source, std::size_t bytes) {
    if (bytes == 0)
        return;
    bool const by_peers = here != any_device && there != any_device && there != here;
    bool const in_graph = (by_peers || source != target) && target.is_captured();
    if (source != target && !in_graph && source.is_in_graph())
        throw usage_error(
            "weir: the source's stream is being captured into a graph, which would write the target at each launch; "
            "put the target's stream after it first ('order_after'), or copy after the capture");
    bool const by_source = here == any_device && there != any_device && !in_graph;
    order::placed_stream const& on = by_source ? source : target;
    order::placed_stream const& other = by_source ? target : source;
    order_after(on, other);
    {
        // CUDA refuses the copy if the memory is not open to the current device. A default stream has to run on its own
        // device.
        runtime::device_scope const its(runtime::is_default_stream(on.stream) ? on.device : by_source ? there : here);
        if (by_peers && !in_graph) // inside a capture, a copy between devices needs memory that is open to both
            check_cuda(cudaMemcpyPeerAsync(to, here, from, there, bytes, on.stream.get()), "cudaMemcpyPeerAsync",
                  if_no_such_memory);
        else
            check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.stream.get()), "cudaMemcpyAsync",
                  if_no_such_memory);
    }
    try {
        order_after(other, on);
    } catch (...) {
        // The copy may be running, and the other stream does not wait for it. So the host waits instead; not for a captured
        // stream, whose work does not run yet.
        if (!base::try_twice([&] {
                runtime::device_scope const its(on.device);
                return synchronize(on.stream), true;
            }))
            throw;
    }
}

} // namespace order
} // namespace v0
} // namespace weir
