// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in chunks of one size: how much does a pool ask its upstream for?
//
// A larger need gets its own size. For pools whose chunks should be alike, and whose size is known.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// Chunks of `ChunkBytes` bytes; a larger need gets its own size.
template <std::size_t ChunkBytes>
struct fixed {
    static_assert(ChunkBytes > 0, "weir: growth::fixed needs a chunk size of at least one byte");

    /// Bytes to ask for when `needed_bytes` are needed and `reserved_bytes` held.
    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t) noexcept {
        return needed_bytes > ChunkBytes ? needed_bytes : ChunkBytes;
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
