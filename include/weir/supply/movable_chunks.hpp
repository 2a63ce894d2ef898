// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which of a pool's wholly free chunks moves next?
//
// Moving a chunk costs the same whatever its size. So the largest one goes first that is no larger than what is lacking; if all
// are larger, the smallest. A chunk lies in a free range, which other chunks may share. When it has gone, the chunks behind it
// lie in a free range that starts where it ended.
//
// order:     one thread at a time.
// cost:      next, and gone: O(chunks).
// not for:   knowing what is free: placements do.

#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// A chunk that is wholly free.
struct movable_chunk {
    base::range chunk;
    std::size_t free_from = 0; ///< the start of the free range that it lies in
};

class movable_chunks {
public:
    /// Throws std::bad_alloc.
    void add(movable_chunk chunk) {
        chunks_.push_back(chunk);
        bytes_ += chunk.chunk.bytes;
    }

    /// The sum of the bytes of all chunks here.
    std::size_t bytes() const noexcept { return bytes_; }

    /// Takes out the chunk that suits `bytes` best, of at most `most_bytes`; an empty chunk if there is none.
    movable_chunk next(std::size_t bytes, std::size_t most_bytes) noexcept {
        movable_chunk* best = nullptr;
        for (movable_chunk& each : chunks_)
            if (each.chunk.bytes <= most_bytes && (!best || suits_better(each.chunk.bytes, best->chunk.bytes, bytes)))
                best = &each;
        if (!best)
            return movable_chunk{};
        movable_chunk const taken = *best;
        chunks_.erase(best);
        bytes_ -= taken.chunk.bytes;
        return taken;
    }

    /// Notes that `taken`, which 'next' returned, is not free any more.
    void gone(movable_chunk const& taken) noexcept {
        for (movable_chunk& each : chunks_)
            if (each.free_from == taken.free_from && each.chunk.offset > taken.chunk.offset)
                each.free_from = taken.chunk.end();
    }

private:
    static bool suits_better(std::size_t size, std::size_t than, std::size_t wanted) noexcept {
        return size <= wanted ? than > wanted || than < size : than > size;
    }

    base::growing_array<movable_chunk> chunks_;
    std::size_t bytes_ = 0;
};

} // namespace supply
} // namespace v0
} // namespace weir
