// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much of a pool's memory is handed out?
//
// The few numbers that a reuse rule knows and a pool reports. A rule keeps them under the locks that it holds
// anyway; reading them sums over its parts.
//
// invariant: bytes and blocks count what was taken and not yet given, with the placement's rounding.
// cost:      none to keep.
// not for:   peaks and totals: see layer::statistics.

#include <cstddef>
#include <cstdint>
#include <weir/base/range.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// A snapshot; sizes in bytes.
struct usage {
    std::size_t bytes = 0;              ///< taken and not yet given
    std::size_t blocks = 0;             ///< the same, counted
    std::size_t largest_free_bytes = 0; ///< the largest range that can be taken without more memory
    std::size_t unsettled_bytes = 0;    ///< freed, and nobody's before a 'settle', but of the stream that freed them
    std::size_t lost_bytes = 0;         ///< freed, but not handed out again: graphs may use them, or the host had no memory

    /// Counts a block that was taken.
    void took(range block) noexcept {
        bytes += block.bytes;
        ++blocks;
    }
    /// Counts a block that was given back. A part of a sum may get below zero, modulo 2^64.
    void gave(range block) noexcept {
        bytes -= block.bytes;
        --blocks;
    }
    /// What is below zero becomes zero: more was given back than taken.
    void not_below_zero() noexcept {
        bytes = bytes > SIZE_MAX / 2 ? 0 : bytes;
        blocks = blocks > SIZE_MAX / 2 ? 0 : blocks;
    }
};

} // namespace base
} // namespace v0
} // namespace weir
