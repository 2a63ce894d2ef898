// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// For which freed blocks does no event tell when they are free?
//
// Mostly a stream's own calls record the event that tells when the work that used its last frees is over. But a stream that
// was destroyed makes no more calls, and in a host function CUDA records nothing. What was freed there is stranded: it stays
// in this list until somebody has waited for all work of the device. Whoever waits marks the end of the list before the wait,
// and afterwards takes what lies in front of the mark.
//
// invariant: 'weight' is never below the sum of the blocks' bytes.
// order:     one thread at a time, except for 'weight'.
// cost:      24 bytes of host memory for each block.
// not for:   blocks that events tell of: see deferred_blocks.hpp.

#include <cstddef>
#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// One thread at a time; any thread may call 'weight'.
class stranded_blocks {
public:
    /// In 'weight' each block counts as so many bytes at least, so that many small blocks do not stay here for ever.
    static constexpr std::size_t least_weight = 16 * KiB;

    /// Adds a block that work on device number `device` may use (any_device: work on any device). An empty block stands for
    /// bytes that are handed out again: the work on the device is to be waited for all the same. Throws std::bad_alloc before
    /// any change.
    void add(base::range block, int device) {
        entries_.push_back(entry{block, device});
        bytes_ += block.bytes;
        weigh(weight() + weight_of(block));
    }

    /// The mark: a number for the present end of the list, for 'take_until'.
    std::uint64_t mark() const noexcept { return taken_ + entries_.size(); }

    /// Calls visit(device) for the device of each block.
    template <class Visit>
    void visit_devices(Visit const& visit) const {
        for (entry const& each : entries_)
            visit(each.device);
    }

    /// Hands every block in front of `mark` to `sink(range)` and forgets it. If the sink throws, the others stay.
    template <class Sink>
    void take_until(std::uint64_t mark, Sink const& sink) {
        std::size_t done = 0;
        struct remainder {
            stranded_blocks& list;
            std::size_t& done;
            ~remainder() { list.drop(done); }
        } const rest{*this, done};
        for (; taken_ + done < mark && done < entries_.size(); ++done)
            if (base::range const block = entries_[done].block)
                sink(block);
    }

    /// Sum of the blocks' bytes.
    std::size_t bytes() const noexcept { return bytes_; }
    /// The same, but each block counts as 'least_weight' at least. Any thread; the answer may be out of date by a moment.
    std::size_t weight() const noexcept { return weight_.load(base::memory_order_relaxed); }

private:
    struct entry {
        base::range block;
        int device;
    };

    static std::size_t weight_of(base::range block) noexcept { return block.bytes < least_weight ? least_weight : block.bytes; }
    void weigh(std::size_t now) noexcept { weight_.store(now, base::memory_order_relaxed); }

    // Removes the first `count` entries.
    void drop(std::size_t count) noexcept {
        for (std::size_t i = 0; i != count; ++i) {
            bytes_ -= entries_[i].block.bytes;
            weigh(weight() - weight_of(entries_[i].block));
        }
        for (std::size_t i = count; i != entries_.size(); ++i)
            entries_[i - count] = entries_[i];
        for (std::size_t i = 0; i != count; ++i)
            entries_.pop_back();
        taken_ += count;
    }

    base::growing_array<entry> entries_;
    std::uint64_t taken_ = 0; // how many entries have been removed from the front
    std::size_t bytes_ = 0;
    base::atomic<std::size_t> weight_{0};
};

} // namespace order
} // namespace v0
} // namespace weir
