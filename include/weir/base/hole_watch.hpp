// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does a pool's free memory lie in holes?
//
// A hole is a piece of free memory that is too small for the block that is needed. A pool that grows while nearly all of its
// memory is in use has no holes, and it can grow in large chunks. A pool that grows although much of its memory is free, and
// that free memory cannot be moved, has holes. Then small chunks are worth their price, because a chunk can be moved only
// when all of it is free. If a pool had holes and they are filled at the moment, what it gets next will be moved often, and
// each moved chunk costs a driver call; then large chunks are cheaper.
//
// order:     one thread at a time.
// cost:      a few instructions.
// not for:   the size of chunks: growth policies decide that.

#include <cstddef>

namespace weir {
inline namespace v0 {
namespace base {

/// Whether the free memory lies in holes at the moment when the pool grows.
enum class holes : unsigned char {
    never,   ///< it does not, and it never did
    earlier, ///< it did before; at the moment nearly all memory is in use
    now
};

class hole_watch {
public:
    /// Call this when a pool grows for a block. `held_bytes`: what the pool holds, without the bytes that could be moved.
    /// `in_use_bytes`: what is in use, the new block included.
    holes note(std::size_t held_bytes, std::size_t in_use_bytes) noexcept {
        std::size_t const free = held_bytes > in_use_bytes ? held_bytes - in_use_bytes : 0;
        if (free > held_bytes / 16)
            seen_ = true;
        return !seen_ ? holes::never : free > held_bytes / 32 ? holes::now : holes::earlier;
    }

private:
    bool seen_ = false;
};

} // namespace base
} // namespace v0
} // namespace weir
