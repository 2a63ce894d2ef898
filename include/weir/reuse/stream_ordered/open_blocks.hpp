// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which freed blocks does a stream keep before it records an event for them?
//
// These blocks are open: their stream alone may have them, since no event tells others when their last use is over
// (stream_set.hpp). There are two stores. The first is searched by size (recent_blocks.hpp); its number of blocks and its sum
// of bytes are limited by the tuning. A young stream keeps no block in it, so that a stream which lives only shortly leaves
// nothing behind. The second holds blocks that could not go where they belong because the host had no memory, or that no
// event could be recorded for.
//
// invariant: every block is in one of the two stores.
// cost:      put and take of a recent block: a few instructions.
// not for:   knowing who may have which bytes: see stream_set.hpp.

#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/reuse/stream_ordered/recent_blocks.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// One thread at a time. `Tuning`: reuse::stream_ordered's.
template <class Tuning>
class open_blocks {
public:
    /// Begins to keep blocks of another stream, which is young; later at most `recent_bytes` in the first store.
    void start_anew(std::size_t recent_bytes = Tuning::recent_bytes) noexcept {
        young_frees_ = Tuning::young_frees;
        recent_bytes_ = recent_bytes;
        limit_bytes_ = young_frees_ == 0 ? recent_bytes : 0;
    }
    /// Say so when the stream frees a block that went elsewhere: after so many of those it is no longer young.
    void count_free_elsewhere() noexcept {
        if (young_frees_ != 0 && --young_frees_ == 0)
            limit_bytes_ = recent_bytes_; // not young any more: see Tuning::young_frees
    }

    /// Keeps a block in the first store. False: it may not go there, or there is no room.
    bool put(base::range block) noexcept {
        return block.bytes <= limit_bytes_ && recent_.bytes() <= limit_bytes_ - block.bytes && recent_.put(block);
    }
    /// Takes a block of exactly that size from the first store, or an empty range if there is none.
    base::range take(std::size_t bytes, std::size_t alignment) noexcept { return recent_.take(bytes, alignment); }

    /// Makes room so that so many more blocks can be held without memory from the host. Throws std::bad_alloc.
    void reserve(std::size_t blocks) { held_.reserve(held_.size() + blocks); }
    /// Keeps a block in the second store. False: the host has no memory for it.
    bool hold(base::range block) noexcept {
        try {
            held_.push_back(block);
            return true;
        } catch (...) { // the first store needs no memory
            return recent_.put(block);
        }
    }

    /// Hands every block to `sink(range)` and forgets it. If the sink throws, the blocks that it has not taken stay.
    template <class Sink>
    void drain(Sink const& sink) {
        recent_.drain(sink);
        while (!held_.empty()) {
            sink(held_.back());
            held_.pop_back();
        }
    }

    /// Sum of the blocks' bytes.
    std::size_t bytes() const noexcept {
        std::size_t sum = recent_.bytes();
        for (base::range const& block : held_)
            sum += block.bytes;
        return sum;
    }
    bool empty() const noexcept { return recent_.empty() && held_.empty(); }

private:
    recent_blocks<Tuning::recent_blocks> recent_;
    base::growing_array<base::range> held_;
    std::size_t recent_bytes_ = 0;
    std::size_t limit_bytes_ = 0; // of the first store; 0 while the stream is young
    unsigned young_frees_ = 0; // how many frees until the stream is no longer young
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
