// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How many bytes did the users of a pool ask for: at this moment, at most, and in all?
//
// The layer counts requested bytes, that is, without the pool's rounding. Compare their peak with the pool's reserved bytes
// to see what the pool costs. 'reset_peaks' starts a new measurement and leaves the counts of live blocks (handed out and not
// yet freed) as they are. Large live blocks are also listed, so that an out_of_memory can name the largest.
//
// invariant: peak >= current; totals never fall. Each block must be freed once and with its own size: a free counts even if
//            the wrapped pool refuses it. Under layer::guard, as guard<statistics<Pool>>, a wrong free does not reach this
//            layer.
// order:     the counts are exact once no call is under way; if they are read during calls, they may be off by those calls.
// cost:      a few relaxed atomic operations a call; for a large block a mutex and a hash look-up as well.
// not for:   how full the pool itself is: see pool::state. Blocks of a driver_pool that belong to a graph and are freed once
//            a launch: allocate and free those through 'inner()'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/fwd.hpp>
#include <weir/layer/statistics/live_blocks.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class statistics : public layered<statistics<Pool>, Pool> {
    using wrapper = layered<statistics<Pool>, Pool>;

public:
    /// Blocks of at least this many bytes are listed.
    static constexpr std::size_t least_listed_bytes = 1 * MiB;

    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit statistics(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    statistics() : wrapper(std::in_place) {}

    /// As the wrapped pool's. Counts the block, or the failure.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block) {
            base::raise(peak_requested_bytes_, requested_bytes_.fetch_add(bytes, base::memory_order_relaxed) + bytes);
            base::raise(peak_live_blocks_, live_blocks_.fetch_add(1, base::memory_order_relaxed) + 1);
            total_bytes_.fetch_add(bytes, base::memory_order_relaxed);
            total_blocks_.fetch_add(1, base::memory_order_relaxed);
            if (bytes >= least_listed_bytes)
                large_.enter(block, bytes);
        } else if (bytes != 0) {
            failures_.fetch_add(1, base::memory_order_relaxed);
        }
        return block;
    }

    /// As the wrapped pool's. Takes the block off the counts.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (p) {
            base::lower(requested_bytes_, bytes);
            base::lower(live_blocks_, std::uint64_t{1});
            if (bytes >= least_listed_bytes)
                large_.leave(p);
        }
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

    /// The requested bytes, and the number, of the live blocks.
    std::uint64_t requested_bytes() const noexcept { return requested_bytes_.load(base::memory_order_relaxed); }
    std::uint64_t live_blocks() const noexcept { return live_blocks_.load(base::memory_order_relaxed); }
    /// The most bytes and blocks that were live since the last reset_peaks.
    std::uint64_t peak_requested_bytes() const noexcept { return peak_requested_bytes_.load(base::memory_order_relaxed); }
    std::uint64_t peak_live_blocks() const noexcept { return peak_live_blocks_.load(base::memory_order_relaxed); }
    /// All bytes and blocks that were ever handed out.
    std::uint64_t total_bytes() const noexcept { return total_bytes_.load(base::memory_order_relaxed); }
    std::uint64_t total_blocks() const noexcept { return total_blocks_.load(base::memory_order_relaxed); }
    /// Allocations that the pool refused.
    std::uint64_t failures() const noexcept { return failures_.load(base::memory_order_relaxed); }

    /// Sets the peaks to what is live at this moment. Call it while no other call is under way, or a peak may be missed.
    void reset_peaks() noexcept {
        peak_requested_bytes_.store(requested_bytes(), base::memory_order_relaxed);
        peak_live_blocks_.store(live_blocks(), base::memory_order_relaxed);
    }

    /// Adds the largest of the listed live blocks to the report. See 'full_state'.
    void examine(memory_report& now) const noexcept {
        weir::examine(this->pool_, now);
        large_.offer_to(now.largest_live);
    }

private:
    base::atomic<std::uint64_t> requested_bytes_{0};
    base::atomic<std::uint64_t> live_blocks_{0};
    base::atomic<std::uint64_t> peak_requested_bytes_{0};
    base::atomic<std::uint64_t> peak_live_blocks_{0};
    base::atomic<std::uint64_t> total_bytes_{0};
    base::atomic<std::uint64_t> total_blocks_{0};
    base::atomic<std::uint64_t> failures_{0};
    layer::detail::live_blocks large_;
};

} // namespace layer
} // namespace v0
} // namespace weir
