// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does CUDA let one set on a memory pool?
//
// A struct of values with defaults, for pools of device, pinned and managed memory. What CUDA has not for one kind is
// refused with a sentence before CUDA is asked.
//
// cost:      a text and a few words, copied once.
// not for:   weir's own pools: those take pool_options.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/memory_location.hpp>

namespace weir {
inline namespace v0 {

/// What CUDA lets one set on a memory pool.
struct driver_pool_options {
    text name = "driver";
    /// The device whose memory it is and whose default streams are meant. Of pinned and managed memory: the device under
    /// which it is made. any_device: the one that is current when the pool is made.
    int device = any_device;
    std::size_t release_threshold_bytes = SIZE_MAX; ///< kept over a synchronisation
    std::size_t maximum_bytes = 0;           ///< the most it may hold, which CUDA rounds up; 0: no limit. Not for managed
    bool follow_event_dependencies = true;   ///< reuse across streams that events order
    bool allow_opportunistic = true;         ///< reuse across streams once the free has run
    bool allow_internal_dependencies = true; ///< reuse across streams by making one wait
    leak_action on_leak = leak_action::report; ///< what happens when it ends with live blocks
    /// Pinned: the host (the same as anywhere) or one NUMA node of it; before CUDA 13 a node (anywhere: node 0). Managed:
    /// where the pages prefer to be. Not for device.
    memory_location location = memory_location::anywhere();
    /// As what the pool can be exported to other processes: 0 (not at all), cudaMemHandleTypePosixFileDescriptor,
    /// cudaMemHandleTypeFabric, or both ('|'). Device memory, and pinned memory of one NUMA node. CUDA takes nothing from
    /// such a pool into a graph.
    unsigned handle_types = 0;
};

namespace detail {

// Why CUDA's pool of `space` has no room for `bytes` bytes, `padding` of which a block's alignment costs.
inline text driver_refusal_text(memory_space space, bool bounded, std::size_t bytes, std::size_t padding) {
    return "CUDA's memory pool found no " + base::exact_bytes_text(bytes) +
           (padding == 0 ? text() : ", " + base::number_text(padding) + " of them for the alignment,") +
           (bounded ? " within its maximum and " : " in ") +
           (space == memory_space::device ? "the device's" : "the machine's") + " memory; free something" +
           (bounded ? " or raise maximum_bytes" : "");
}

/// The pool of `space` that `options` describe, for CUDA. Throws usage_error for what CUDA does not have.
inline cudaMemPoolProps properties_of(memory_space space, driver_pool_options const& options) {
    using place = v0::memory_location;
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = static_cast<cudaMemAllocationHandleType>(options.handle_types);
    properties.location = options.location.get();
    properties.maxSize = options.maximum_bytes;
    bool const anywhere = options.location == place::anywhere();
    if (options.location == place::nearest_host_node())
        throw usage_error("weir: a memory pool stays where it is made; name the NUMA node with "
                          "memory_location::host_node, not the nearest one");
    if (space == memory_space::device) {
        if (!anywhere && options.location != place::device(options.device))
            throw usage_error("weir: a pool of device memory is on the device 'device'; set that, and leave 'location'");
        properties.location = place::device(options.device).get();
    } else if (space == memory_space::pinned) {
        if (properties.location.type == cudaMemLocationTypeDevice)
            throw usage_error("weir: a pool of pinned memory is on the host; set 'location' to memory_location::host() or "
                              "host_node, or use driver_pool");
#if CUDART_VERSION >= 13000
        if (anywhere)
            properties.location = place::host().get();
#else
        if (properties.location.type == cudaMemLocationTypeHost)
            throw usage_error("weir: before CUDA 13 a pool of pinned memory is on one NUMA node of the host; set 'location' "
                              "to memory_location::host_node");
        if (anywhere)
            properties.location = place::host_node(0).get();
#endif
        if (options.handle_types != 0 && properties.location.type == cudaMemLocationTypeHost)
            throw usage_error("weir: CUDA exports pinned memory only where it is on one NUMA node; set 'location' to "
                              "memory_location::host_node, or 'handle_types' to 0");
    } else {
#if CUDART_VERSION >= 13000
        properties.allocType = cudaMemAllocationTypeManaged;
#endif
        if (options.maximum_bytes != 0)
            throw usage_error("weir: CUDA's pools of managed memory have no maximum; leave 'maximum_bytes' at 0, and put "
                              "layer::limit around the pool");
        if (options.handle_types != 0)
            throw usage_error("weir: CUDA does not export managed memory; leave 'handle_types' at 0");
    }
    return properties;
}

} // namespace detail
} // namespace v0
} // namespace weir
