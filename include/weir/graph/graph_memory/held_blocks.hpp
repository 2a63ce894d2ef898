// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does graph memory hold until its graph is gone?
//
// Blocks of its pool, of two kinds. Chunks are those that it got itself and cuts the graph's blocks from. Adopted blocks were
// handed out before the capture and freed in it; the graph may use them at each launch. All go back to the pool together.
//
// invariant: a block is here from the moment that the graph may use it until 'give_back'.
// cost:      O(blocks held) a look-up; there are few.
// not for:   which bytes of a chunk are free: see captured_streams.hpp.

#include <cstddef>
#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// A block of the pool, with what the pool wants to be told when it is freed.
struct held_block {
    void* p = nullptr;
    std::size_t bytes = 0;
    std::size_t alignment = 0;

    base::range bytes_of() const noexcept { return {reinterpret_cast<std::uintptr_t>(p), bytes}; }
};

/// One thread at a time.
class held_blocks {
public:
    /// The bytes of the next chunk, in which a block that needs `needed` bytes is to fit. Chunks grow with what was got:
    /// otherwise sizes that rise from block to block would each leave a chunk behind.
    std::size_t next_chunk_bytes(std::size_t needed) const noexcept {
        std::size_t const usual = chunk_bytes_ / 2 > least_chunk_bytes ? chunk_bytes_ / 2 : least_chunk_bytes;
        return needed > usual ? needed : usual;
    }

    /// Makes room for one more block. Call it before 'add_chunk' and 'adopt'. Throws std::bad_alloc.
    void reserve() { blocks_.reserve_more(1); }
    void add_chunk(held_block chunk) noexcept {
        blocks_.push_back(chunk);
        chunk_bytes_ += chunk.bytes;
    }
    void adopt(held_block block) noexcept { blocks_.push_back(block); }

    std::size_t count() const noexcept { return blocks_.size(); }
    std::size_t bytes() const noexcept {
        std::size_t sum = 0;
        for (held_block const& each : blocks_)
            sum += each.bytes;
        return sum;
    }
    bool has_adopted() const noexcept { return bytes() != chunk_bytes_; }
    /// Whether `address` lies in one of them.
    bool owns(std::size_t address) const noexcept {
        for (held_block const& each : blocks_)
            if (each.bytes_of().contains(address))
                return true;
        return false;
    }

    /// Frees all of them on `stream`.
    template <class Pool>
    void give_back(Pool& pool, stream_ref stream) noexcept {
        for (held_block const& each : blocks_)
            pool.deallocate(stream, each.p, each.bytes, each.alignment);
        blocks_.clear();
        chunk_bytes_ = 0;
    }

private:
    static constexpr std::size_t least_chunk_bytes = 2 * MiB; // what small blocks share

    base::growing_array<held_block> blocks_;
    std::size_t chunk_bytes_ = 0; // of chunks only
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
