// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does a pool's free memory lie in holes?
//
// A pool that grows while nearly all it holds is in use has no holes: what it gets may come in large chunks. One that
// grows although much of what it holds is free, and cannot be moved, has them: what is free lies in pieces too small for
// the block. Then small chunks are worth their price, since a chunk can be moved only when all of it is free. Where holes
// were seen and are filled, what is got next will be moved often, at a price a chunk.
//
// order:     one thread at a time.
// cost:      a few instructions.
// not for:   how large chunks are: growth policies say.

#include <cstddef>

namespace weir {
inline namespace v0 {
namespace base {

/// Whether free memory lies in holes, at a moment of growth.
enum class holes : unsigned char {
    never,   ///< nor did it before
    earlier, ///< it did before; by now nearly all is in use
    now
};

class hole_watch {
public:
    /// A pool that holds `held_bytes`, but for those that could be moved, grows for a block; with it, `in_use_bytes` are in
    /// use.
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
