// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who may touch the bytes that an upstream hands out?
//
// There is one word for each kind of memory that CUDA knows. A part states its kind as 'static constexpr memory_space space'.
// A container can then refuse, at compile time, a pool whose memory its elements cannot use.
//
// invariant: every space is accessible from the host, from a device, or from both.
// cost:      none; everything here is a constant expression.
// not for:   which device: a pool says so with 'device()'.

#include <cstddef>

namespace weir {
inline namespace v0 {

/// Who reaches memory, and by which calls it came.
enum class memory_space : unsigned char {
    device,  ///< from cudaMalloc and similar calls: only kernels and copies reach it
    pinned,  ///< page-locked host memory: the host reaches it at full speed, devices over the bus
    managed, ///< pages move to whoever touches them: host and devices reach it
    host     ///< ordinary memory: only the host reaches it
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

/// The alignment in bytes of a block whose caller names none: 256 in device and managed memory, as from cudaMalloc, and in
/// other memory what any type needs.
constexpr std::size_t usual_alignment(memory_space space) noexcept {
    return space == memory_space::device || space == memory_space::managed ? 256 : alignof(std::max_align_t);
}

/// The same in a pool of `Placement`: it is lower if the blocks of that are not aligned that far.
template <class Placement>
constexpr std::size_t default_alignment_of(memory_space space) noexcept {
    std::size_t alignment = usual_alignment(space);
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
