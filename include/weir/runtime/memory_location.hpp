// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one say where memory should be?
//
// CUDA names a place by a type and a number, and what the number means depends on the type. Here each place has a name, and
// takes a number only if it needs one.
//
// invariant: get() is the place as CUDA's calls take it.
// cost:      two words; everything here is a constant expression.
// not for:   saying which side may touch the memory: see memory_space.hpp.

#include <cuda_runtime_api.h>

namespace weir {
inline namespace v0 {

/// A place for memory. Trivially copyable.
class memory_location {
public:
    /// No place in particular.
    static constexpr memory_location anywhere() noexcept { return {static_cast<cudaMemLocationType>(0), 0}; }
    /// The memory of device number `device`.
    static constexpr memory_location device(int device) noexcept { return {cudaMemLocationTypeDevice, device}; }
    /// The host's memory.
    static constexpr memory_location host() noexcept { return {cudaMemLocationTypeHost, 0}; }
    /// The host's NUMA node `node`. The node next to a device is that device's attribute cudaDevAttrHostNumaId.
    static constexpr memory_location host_node(int node) noexcept { return {cudaMemLocationTypeHostNuma, node}; }
    /// The NUMA node next to the processor on which the calling thread runs when the place is passed to CUDA.
    static constexpr memory_location nearest_host_node() noexcept { return {cudaMemLocationTypeHostNumaCurrent, 0}; }

    /// The place for CUDA's calls.
    constexpr cudaMemLocation get() const noexcept {
        cudaMemLocation place{};
        place.type = type_;
        place.id = id_;
        return place;
    }

    friend constexpr bool operator==(memory_location a, memory_location b) noexcept {
        return a.type_ == b.type_ && a.id_ == b.id_;
    }
    friend constexpr bool operator!=(memory_location a, memory_location b) noexcept { return !(a == b); }

private:
    constexpr memory_location(cudaMemLocationType type, int id) noexcept : type_(type), id_(id) {}

    cudaMemLocationType type_;
    int id_;
};

} // namespace v0
} // namespace weir
