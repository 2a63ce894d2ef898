// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What was handed out of a stream's set, and what came back?
//
// Both are counted since the pool began, and never fall. So whoever looks twice knows what went through the set meanwhile,
// which costs no more than to count what is out at this moment. A set that another stream takes over goes on counting.
//
// invariant: a pool's bytes and blocks in use are the sums over all its sets. Those of one set may be below zero (modulo
//            2^64), since blocks may come back to another set than they were of.
// order:     under the set's lock.
// cost:      two additions a call, to one cache line. (An alignment beyond 16 would take another operator new for each set.)
// not for:   bytes that lie in the set: its placement counts those.

#include <cstddef>
#include <cstdint>
#include <weir/base/range.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Sizes in bytes, with the placement's rounding.
struct alignas(16) set_counts {
    std::uint64_t taken_bytes = 0, taken_blocks = 0;
    std::uint64_t given_bytes = 0, given_blocks = 0;
    std::size_t lost_bytes = 0; ///< freed, but handed out to nobody

    void took(base::range block) noexcept {
        taken_bytes += block.bytes;
        ++taken_blocks;
    }
    void gave(base::range block) noexcept {
        given_bytes += block.bytes;
        ++given_blocks;
    }
    /// What is out.
    std::size_t bytes() const noexcept { return taken_bytes - given_bytes; }
    std::size_t blocks() const noexcept { return taken_blocks - given_blocks; }
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
