// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does CUDA let one set on a memory pool?
//
// A struct of values with defaults, for pools of device, pinned and managed memory. What CUDA does not have for one of these
// kinds is refused with a sentence before CUDA is asked.
//
// cost:      a text and a few words, copied once.
// not for:   weir's own pools: those take pool_options.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <type_traits>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/memory_location.hpp>

namespace weir {
inline namespace v0 {

/// What CUDA lets one set on a memory pool. Set in a chain: driver_pool_options{}.limit(8 * GiB).name("frames").
class driver_pool_options {
public:
    driver_pool_options() = default;
    /// Refused: a number does not say what it limits.
    template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
    driver_pool_options(Number) {
        static_assert(sizeof(Number) == 0, "weir: a pool takes numbers by name: 'driver_pool_options{}.limit(bytes)', "
                                           "'driver_pool_options{}.reserve(bytes)'");
    }

    /// The pool's name in reports and errors; 'driver' by default.
    driver_pool_options& name(text name) { return name_ = std::move(name), *this; }
    /// The number of the device that the memory lies on and whose default streams are meant. For pinned and managed memory: the
    /// device under which the pool is made. any_device, the default: the device that is current when the pool is made.
    driver_pool_options& device(int number) noexcept { return device_ = number, *this; }
    /// The most bytes that the pool may hold, which CUDA rounds up; SIZE_MAX, the default: no limit. Not for managed memory.
    driver_pool_options& limit(std::size_t bytes) noexcept { return limit_bytes_ = bytes, *this; }
    /// Bytes that the pool gets as it begins; see driver_pool_of::reserve. 0 by default.
    driver_pool_options& reserve(std::size_t bytes) noexcept { return reserve_bytes_ = bytes, *this; }
    /// Bytes that the pool keeps when a stream or device is synchronised; SIZE_MAX, the default: all.
    driver_pool_options& release_threshold(std::size_t bytes) noexcept { return release_threshold_bytes_ = bytes, *this; }
    /// Whether another stream gets freed bytes if events order it behind the free already; true by default.
    driver_pool_options& follow_event_dependencies(bool may) noexcept { return follow_event_dependencies_ = may, *this; }
    /// Whether another stream gets freed bytes once the free has run; true by default.
    driver_pool_options& allow_opportunistic(bool may) noexcept { return allow_opportunistic_ = may, *this; }
    /// Whether another stream gets freed bytes by being made to wait for the free; true by default.
    driver_pool_options& allow_internal_dependencies(bool may) noexcept { return allow_internal_dependencies_ = may, *this; }
    /// What happens when the pool ends while blocks are handed out; `report` by default.
    driver_pool_options& on_leak(leak_action action) noexcept { return on_leak_ = action, *this; }
    /// Where the memory lies. Pinned: the host (the same as anywhere) or one of its NUMA nodes; before CUDA 13 only a node, and
    /// anywhere means node 0. Managed: where the pages prefer to be. Not for device memory.
    driver_pool_options& location(memory_location place) noexcept { return location_ = place, *this; }
    /// As what the pool can be exported to other processes: 0 (not at all), cudaMemHandleTypePosixFileDescriptor,
    /// cudaMemHandleTypeFabric, or both ('|'). For device memory, and for pinned memory of one NUMA node. CUDA takes nothing
    /// from such a pool into a graph.
    driver_pool_options& handle_types(unsigned types) noexcept { return handle_types_ = types, *this; }

    text const& name() const noexcept { return name_; }
    int device() const noexcept { return device_; }
    std::size_t limit_bytes() const noexcept { return limit_bytes_; }
    std::size_t reserve_bytes() const noexcept { return reserve_bytes_; }
    std::size_t release_threshold_bytes() const noexcept { return release_threshold_bytes_; }
    bool follow_event_dependencies() const noexcept { return follow_event_dependencies_; }
    bool allow_opportunistic() const noexcept { return allow_opportunistic_; }
    bool allow_internal_dependencies() const noexcept { return allow_internal_dependencies_; }
    leak_action on_leak() const noexcept { return on_leak_; }
    memory_location location() const noexcept { return location_; }
    unsigned handle_types() const noexcept { return handle_types_; }

private:
    text name_ = "driver";
    int device_ = any_device;
    std::size_t limit_bytes_ = SIZE_MAX;
    std::size_t reserve_bytes_ = 0;
    std::size_t release_threshold_bytes_ = SIZE_MAX;
    bool follow_event_dependencies_ = true;
    bool allow_opportunistic_ = true;
    bool allow_internal_dependencies_ = true;
    leak_action on_leak_ = leak_action::report;
    memory_location location_ = memory_location::anywhere();
    unsigned handle_types_ = 0;
};

namespace driver::detail {

/// Where to turn if the device has no memory pools of `space`, as a clause.
constexpr char const* instead_of_driver_pool(memory_space space) noexcept {
    return space == memory_space::device   ? "this device has no memory pools; use device_pool"
           : space == memory_space::pinned ? "there are no memory pools of pinned memory here; use pinned_pool"
                                           : "there are no memory pools of managed memory here; use managed_pool";
}

/// Why CUDA's pool of `space` has no room for `bytes` bytes, of which `padding` are for a block's alignment. `by_limit`: since
/// its limit leaves none, and not the memory; `ever`: there would be room if less were in use.
inline text driver_refusal_text(memory_space space, bool by_limit, bool ever, std::size_t bytes, std::size_t padding) {
    return "CUDA's memory pool found no " + base::exact_bytes_text(bytes) +
           (padding == 0 ? text() : ", " + base::number_text(padding) + " of them for the alignment,") +
           (by_limit                         ? " within its limit; "
            : space == memory_space::device ? " in the device's memory; "
                                             : " in the machine's memory; ") +
           (ever ? "free something" : "ask for less") + (by_limit ? " or raise the limit" : "");
}

/// The most bytes that there can be in a pool of `space`, as far as is known. Managed memory may be more than a device has.
inline std::size_t most_driver_bytes(memory_space space, driver_pool_options const& options) noexcept {
    return space == memory_space::device   ? runtime::device_total_bytes(options.device())
           : space == memory_space::pinned ? runtime::host_total_bytes()
                                           : base::most_addresses;
}
/// Whether CUDA's pool could have room for `bytes` bytes, which include a block's padding, if nothing were handed out. CUDA
/// rounds a limit up to pages of 2 MiB. Asks CUDA how much memory there is in all.
inline bool driver_can_hold(memory_space space, driver_pool_options const& options, std::size_t bytes) noexcept {
    return base::align_down(bytes - 1, 2 * MiB) < options.limit_bytes() && bytes <= most_driver_bytes(space, options);
}

/// The pool of `space` that `options` describe, for CUDA. Throws usage_error for what CUDA does not have.
inline cudaMemPoolProps properties_of(memory_space space, driver_pool_options const& options) {
    using place = v0::memory_location;
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = static_cast<cudaMemAllocationHandleType>(options.handle_types());
    properties.location = options.location().get();
    properties.maxSize = options.limit_bytes() == SIZE_MAX ? 0 : options.limit_bytes();
    bool const anywhere = options.location() == place::anywhere();
    if (options.location() == place::nearest_host_node())
        throw usage_error("weir: a memory pool stays where it is made; name the NUMA node with "
                          "memory_location::host_node, not the nearest one");
    if (space == memory_space::device) {
        if (!anywhere && options.location() != place::device(options.device()))
            throw usage_error("weir: a pool of device memory is on the device that 'device' names; set that, and leave "
                              "'location' out");
        properties.location = place::device(options.device()).get();
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
        if (options.handle_types() != 0 && properties.location.type == cudaMemLocationTypeHost)
            throw usage_error("weir: CUDA exports pinned memory only where it is on one NUMA node; set 'location' to "
                              "memory_location::host_node, or leave 'handle_types' out");
    } else {
#if CUDART_VERSION >= 13000
        properties.allocType = cudaMemAllocationTypeManaged;
#endif
        if (options.limit_bytes() != SIZE_MAX)
            throw usage_error("weir: CUDA's pools of managed memory have no limit; leave 'limit' out, and put "
                              "layer::limit around the pool");
        if (options.handle_types() != 0)
            throw usage_error("weir: CUDA does not export managed memory; leave 'handle_types' out");
    }
    return properties;
}

} // namespace driver::detail
} // namespace v0
} // namespace weir
