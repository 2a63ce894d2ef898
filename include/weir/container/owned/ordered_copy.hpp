// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are bytes copied from one owner's stream to another's, so that each finds what it expects?
//
// After what the source's stream did with them, before what it does next, and so for the target. The target's stream makes
// the copy as a rule. Memory of two devices need not be open to either: it is copied by peers. What lies on no device
// (managed) is filled by the stream of the device that its source lies on.
//
// invariant: where this throws, nothing was enqueued, or what was is over (but where CUDA does not answer at all).
// order:     behind both streams so far, before both from now on.
// cost:      on one stream the copy's; on two, two events, about 2 us.
// not for:   copies that the host makes.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

inline constexpr char const* if_no_such_memory =
    "the source or the target is not live memory of that size, or lies on a device whose memory the current one cannot use; "
    "check both, or open the memory ('enable_access_from')";

/// Copies `bytes` bytes from `from`, which lies on device `there` (any_device: on none, or the host) and with which `source`
/// works, to `to`, on device `here`, with which `target` works. Does not block, but where the second half of the order fails,
/// and for memory of the host's that is not page-locked. Any thread. Throws cuda_error, and usage_error where one stream is
/// captured and the other is not, or into another graph.
inline void copy_in_order(void* to, int here, order::placed_stream const& target, void const* from, int there,
                          order::placed_stream const& source, std::size_t bytes) {
    if (bytes == 0)
        return;
    bool const by_peers = here != any_device && there != any_device && there != here;
    bool const in_graph = (by_peers || source != target) && target.is_captured();
    if (source != target && !in_graph && !runtime::is_legacy(source.stream) && source.is_captured())
        throw usage_error(
            "weir: the source's stream is being captured into a graph, which would write the target at each launch; "
            "put the target's stream after it first ('order_after'), or copy after the capture");
    bool const by_source = here == any_device && there != any_device && !in_graph;
    order::placed_stream const& on = by_source ? source : target;
    order::placed_stream const& other = by_source ? target : source;
    order_after(on, other);
    {
        // CUDA refuses a current device that memory is not open to; but a default stream is its device's.
        runtime::device_guard const its(runtime::is_default_stream(on.stream) ? on.device : by_source ? there : here);
        if (by_peers && !in_graph) // a captured copy between devices wants the memory open
            check(cudaMemcpyPeerAsync(to, here, from, there, bytes, on.stream.get()), "cudaMemcpyPeerAsync",
                  if_no_such_memory);
        else
            check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.stream.get()), "cudaMemcpyAsync",
                  if_no_such_memory);
    }
    try {
        order_after(other, on);
    } catch (...) {
        // The copy may be running, and the other stream does not know: the host waits in its stead.
        runtime::device_guard const its(on.device);
        runtime::capture_mode_guard const relaxed;
        if (!runtime::succeeded(cudaStreamSynchronize(on.stream.get())))
            throw;
    }
}

} // namespace detail
} // namespace v0
} // namespace weir
