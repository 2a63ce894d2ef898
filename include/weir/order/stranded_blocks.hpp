// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// For which freed blocks does no event tell when they are free?
//
// Mostly a stream's own calls record the event that tells when the work that used its last frees is over. But a stream that
// was destroyed makes no more calls, and in a host function CUDA records nothing. What was freed there is stranded: it stays
// in this list until somebody has waited for all work of the device. Whoever waits marks the end of the list before the wait,
// and afterwards takes what lies in front of the mark.
//
// A block that a captured stream freed is lost before that: its graph may use it at each launch. Once CUDA says that nothing is
// left of the graph (graph_life.hpp), the block is stranded, since work from before the capture may still use it.
//
// invariant: 'weight' is never below the sum of the stranded blocks' bytes. No block is stranded while its graph lives.
// order:     one thread at a time, except for 'weight' and 'graph_bytes'.
// cost:      24 bytes of host memory for each block; 40 for a graph's, and two CUDA calls for each capture that frees some.
// not for:   blocks that events tell of: see deferred_blocks.hpp.

#include <cstddef>
#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/order/graph_life.hpp>
#include <weir/runtime/capture.hpp>

namespace weir {
inline namespace v0 {
namespace order {

/// One thread at a time; any thread may call 'weight' and 'graph_bytes'.
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
        weigh(weight_, weight() + weight_of(block));
    }

    /// Adds a block that the graph of the capture `by` may use at each launch: it is lost, and stranded once nothing is left of
    /// that graph. False, with nothing done, if `by` is none. The first block of a capture names the graph to CUDA: no other
    /// thread may use the graph meanwhile. Never blocks. Throws cuda_error, std::bad_alloc, before any change.
    bool add_for_graph(base::range block, runtime::capture const& by) {
        if (by.id == 0)
            return false;
        bool const known = !graphs_.empty() && graphs_.back().capture == by.id;
        graphs_.push_back(graph_block{block, by.id, known ? graphs_.back().life : graph_life(by.graph)});
        weigh(graph_bytes_, graph_bytes() + block.bytes);
        return true;
    }

    /// Looks which graphs are gone, and strands their blocks. If the host has no memory for that, they stay lost until the next
    /// call. Never blocks.
    void look_at_graphs() noexcept {
        for (std::size_t i = graphs_.size(); i-- > 0;)
            if (graphs_[i].life.is_over())
                try {
                    add(graphs_[i].block, any_device);
                    weigh(graph_bytes_, graph_bytes() - graphs_[i].block.bytes);
                    base::swap_values(graphs_[i], graphs_.back());
                    graphs_.pop_back();
                } catch (...) { // no host memory
                }
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
    /// Sum of the bytes that are lost to graphs, as far as 'look_at_graphs' has seen. Otherwise as 'weight'.
    std::size_t graph_bytes() const noexcept { return graph_bytes_.load(base::memory_order_relaxed); }

private:
    struct entry {
        base::range block;
        int device;
    };
    struct graph_block {
        base::range block;
        unsigned long long capture;
        graph_life life; // of the capture's graph
    };

    static std::size_t weight_of(base::range block) noexcept { return block.bytes < least_weight ? least_weight : block.bytes; }
    static void weigh(base::atomic<std::size_t>& sum, std::size_t now) noexcept { sum.store(now, base::memory_order_relaxed); }

    // Removes the first `count` entries.
    void drop(std::size_t count) noexcept {
        for (std::size_t i = 0; i != count; ++i) {
            bytes_ -= entries_[i].block.bytes;
            weigh(weight_, weight() - weight_of(entries_[i].block));
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
    base::growing_array<graph_block> graphs_;
    base::atomic<std::size_t> graph_bytes_{0};
};

} // namespace order
} // namespace v0
} // namespace weir
