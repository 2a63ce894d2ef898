// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much of a pool's memory is handed out?
//
// These are the few numbers that a reuse rule knows and a pool reports. A rule counts under the locks that it holds anyway.
// To read the numbers, it adds up those of its parts.
//
// invariant: bytes and blocks count what was taken and not yet given back, with the placement's rounding.
// cost:      none to keep.
// not for:   peaks: see layer::statistics.

#include <cstddef>
#include <cstdint>
#include <weir/base/range.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// The counts at one moment; sizes in bytes.
struct usage {
    std::size_t bytes = 0;              ///< taken and not yet given back
    std::size_t blocks = 0;             ///< blocks taken and not yet given back
    std::size_t largest_free_bytes = 0; ///< the largest block that is not refused where there is no more memory
    std::size_t unsettled_bytes = 0;    ///< freed, and before a 'settle' only the stream that freed them may get them
    std::size_t lost_bytes = 0;         ///< freed, but handed out to nobody: graphs may use them, or the host had no memory

    /// Counts a block that was taken.
    void took(range block) noexcept {
        bytes += block.bytes;
        ++blocks;
    }
    /// Counts a block that was given back. One part of a sum may go below zero (modulo 2^64) when blocks were taken in
    /// another part.
    void gave(range block) noexcept {
        bytes -= block.bytes;
        --blocks;
    }
    /// Sets counts that are below zero to zero. They are below zero when more was given back than taken.
    void not_below_zero() noexcept {
        bytes = bytes > SIZE_MAX / 2 ? 0 : bytes;
        blocks = blocks > SIZE_MAX / 2 ? 0 : blocks;
    }
};

/// What went through the memory of one stream since its pool began, and what lies there; sizes in bytes.
struct stream_usage {
    static constexpr std::uint64_t host = 0;           ///< in place of a stream: memory that the host freed
    static constexpr std::uint64_t ended = UINT64_MAX; ///< the same: a stream that has ended

    std::uint64_t stream = host;    ///< CUDA's handle; of a default stream a number with other low bits than a handle's
    std::uint64_t taken_bytes = 0;  ///< handed out of what was free here, whichever stream asked
    std::uint64_t taken_blocks = 0;
    std::uint64_t given_bytes = 0;  ///< freed on this stream
    std::uint64_t given_blocks = 0;
    std::uint64_t free_bytes = 0;   ///< that lie here now
};

} // namespace base
} // namespace v0
} // namespace weir
