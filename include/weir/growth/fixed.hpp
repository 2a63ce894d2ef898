// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in chunks of one size: how much does a pool ask its upstream for?
//
// If more than one such chunk is needed, the pool asks for exactly that. This suits pools whose final size is known, or whose
// chunks should all be alike.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// Chunks of `ChunkBytes` bytes. A larger need gets a chunk of its own size.
template <std::size_t ChunkBytes>
struct fixed {
    static_assert(ChunkBytes > 0, "weir: growth::fixed needs a chunk size of at least one byte");

    /// Bytes to ask for when `needed_bytes` are needed and `reserved_bytes` are held.
    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t) noexcept {
        return needed_bytes > ChunkBytes ? needed_bytes : ChunkBytes;
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
