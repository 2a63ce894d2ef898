// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which freed blocks does a stream keep before it records an event for them?
//
// The newest are found by size (recent_blocks.hpp), up to a number and a sum of bytes that the tuning names; a stream
// that is young keeps none of them, so that one which lives shortly leaves nothing behind. What could not go where it belongs
// for lack of host memory is held here too.
//
// invariant: every block is in one of the two stores.
// cost:      put and take of a recent block: a few instructions.
// not for:   knowing who may have them: see stream_set.hpp.

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
    /// For another stream, of which it may keep blocks, once that is no longer young, or none.
    void start_anew(bool may_keep) noexcept {
        young_frees_ = may_keep ? Tuning::young_frees : 0;
        limit_bytes_ = may_keep && young_frees_ == 0 ? Tuning::recent_bytes : 0;
    }
    /// The stream freed a block that went elsewhere.
    void grow_older() noexcept {
        if (young_frees_ != 0 && --young_frees_ == 0)
            limit_bytes_ = Tuning::recent_bytes; // it has lived for a while: see Tuning::young_frees
    }

    /// Keeps a block that is found by its size, if it may.
    bool put(base::range block) noexcept {
        return block.bytes <= limit_bytes_ && recent_.bytes() <= limit_bytes_ - block.bytes && recent_.put(block);
    }
    /// A block of just that size that was put here lately, or an empty range.
    base::range take(std::size_t bytes, std::size_t alignment) noexcept { return recent_.take(bytes, alignment); }

    /// Makes room to hold so many blocks more. Throws std::bad_alloc.
    void reserve(std::size_t blocks) { held_.reserve(held_.size() + blocks); }
    /// Keeps a block that is not found by its size; false: there is no host memory for it.
    bool hold(base::range block) noexcept {
        try {
            held_.push_back(block);
            return true;
        } catch (...) { // the store of recent blocks needs none
            return recent_.put(block);
        }
    }

    /// Hands every block to `sink(range)` and forgets it. Where the sink throws, what it has not taken stays.
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
    std::size_t limit_bytes_ = 0; // none while the stream is young
    unsigned young_frees_ = 0;    // to come
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
