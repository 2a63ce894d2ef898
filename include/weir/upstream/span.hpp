// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool live in memory that somebody else owns?
//
// The owner hands over an address and a length, and chunks are cut from it. A chunk comes from the first free range, in order
// of address, that is large enough. A chunk that comes back joins its free neighbours, so the bytes can be cut anew in any
// size. Nothing is ever freed: the memory stays the owner's.
//
// invariant: free ranges are disjoint, sorted and not adjacent; the free ranges and the chunks that are out make up the span.
// order:     none; the pool must know that no work uses a chunk that it gives back.
// cost:      a walk over the free ranges, of which there are few.
// not for:   sharing one span among pools: give each pool a part of its own.

#include <cstddef>
#include <cstdint>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// Memory of the kind `Space`, which must outlive the pool. Copy the object only before its first use. One thread at a time;
/// a pool makes one call after the other.
template <memory_space Space>
class span {
public:
    static constexpr std::size_t alignment = 512;
    static constexpr std::size_t usual_alignment = 1 * MiB; // holds while all chunks are multiples of it and the memory starts
                                                            // at one
    static constexpr memory_space space = Space;

    /// `bytes` bytes at `memory`. Both ends are moved inwards to multiples of 512 bytes. Throws usage_error if `memory` is
    /// null or the range wraps around; std::bad_alloc.
    span(void* memory, std::size_t bytes) {
        auto const address = reinterpret_cast<std::uintptr_t>(memory);
        std::uintptr_t const begin = base::align_up(address, alignment);
        if (!memory || begin == 0 || base::add_overflows(address, bytes))
            throw usage_error("weir: upstream::span needs the address and length of memory that exists; got null "
                              "or a range that wraps around");
        std::uintptr_t const end = base::align_down(address + bytes, alignment);
        if (begin >= end)
            return;
        free_.push_back(base::range{begin, end - begin});
        bytes_ = end - begin;
    }

    /// A chunk of `bytes` bytes, or null when no free range of the span is large enough. `bytes`: a multiple of 512, not 0.
    /// Throws std::bad_alloc.
    void* acquire(std::size_t bytes) {
        free_.reserve(handed_out_ + 2); // each chunk that comes back adds at most one range, so 'release' never allocates
        for (base::range& piece : free_) {
            if (piece.bytes < bytes)
                continue;
            auto const chunk = reinterpret_cast<void*>(piece.offset);
            piece = base::range{piece.offset + bytes, piece.bytes - bytes};
            if (!piece)
                free_.erase(free_.begin() + (&piece - free_.data()));
            ++handed_out_;
            return chunk;
        }
        return nullptr;
    }

    /// Takes a chunk back for a later 'acquire'.
    void release(void* chunk, std::size_t bytes) noexcept {
        base::range piece{reinterpret_cast<std::uintptr_t>(chunk), bytes};
        auto next = free_.begin();
        while (next != free_.end() && next->offset < piece.offset)
            ++next;
        if (next != free_.end() && piece.end() == next->offset) {
            piece.bytes += next->bytes;
            next = free_.erase(next);
        }
        if (next != free_.begin() && next[-1].end() == piece.offset)
            next[-1].bytes += piece.bytes;
        else
            free_.insert(next, piece);
        --handed_out_;
    }

    /// The bytes of the span, free or not. Any thread.
    std::size_t most_bytes() const noexcept { return bytes_; }

private:
    base::growing_array<base::range> free_;
    std::size_t bytes_ = 0;
    std::size_t handed_out_ = 0; // chunks
};

} // namespace upstream
} // namespace v0
} // namespace weir
