// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who may touch the bytes that an upstream hands out?
//
// One word for each kind of memory that CUDA knows. A part carries it as 'static constexpr memory_space
// space', so that a container can refuse at compile time a pool whose memory its elements cannot live in.
//
// invariant: every space is accessible from the host, from a device, or from both.
// cost:      none; everything here is a constant expression.
// not for:   which device: a pool says so with 'device()'.

#include <cstddef>

namespace weir {
inline namespace v0 {

enum class memory_space : unsigned char {
    device,  ///< cudaMalloc and its kin: kernels and copies only
    pinned,  ///< page-locked host memory: the host at full speed, devices over the bus
    managed, ///< migrates on demand: both sides
    host     ///< plain memory: the host only
};

namespace base {

/// Whether kernels may read and write the memory.
constexpr bool device_accessible(memory_space space) noexcept {
    return space != memory_space::host;
}

/// Whether host code may read and write the memory.
constexpr bool host_accessible(memory_space space) noexcept {
    return space != memory_space::device;
}

/// The alignment of a block that asks for none, in bytes, as far as a `Placement`'s blocks have it: 256 where kernels read
/// device memory, as cudaMalloc's, else what any type needs.
template <class Placement>
constexpr std::size_t default_alignment_of(memory_space space) noexcept {
    std::size_t alignment = space == memory_space::device || space == memory_space::managed ? 256 : alignof(std::max_align_t);
    while (alignment > 1 && Placement::rounded(1, alignment) == 0)
        alignment /= 2;
    return alignment;
}

/// The space as a word for reports: 'device', 'pinned', 'managed' or 'host'.
constexpr char const* name_of(memory_space space) noexcept {
    switch (space) {
    case memory_space::device:
        return "device";
    case memory_space::pinned:
        return "pinned";
    case memory_space::managed:
        return "managed";
    case memory_space::host:
        break;
    }
    return "host";
}

} // namespace base
} // namespace v0
} // namespace weir
