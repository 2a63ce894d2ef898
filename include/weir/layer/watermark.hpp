// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When does a pool give memory back that its program needed once and needs no more?
//
// A pool keeps what it got, since the next step of the program will want it. This layer watches the mark: the most bytes
// that were in use over the last allocations, two half windows of them, so that the oldest half can be forgotten. Once
// the mark has fallen by more than some slack, the program has changed, and wholly free memory above the mark and its
// slack goes back, by the pool's own 'trim', within an allocation: there is no thread. What 'trim' cannot have yet, since
// work may still use it, the layer asks for again later, until the pool had to get more: then it was needed after all.
//
// invariant: nothing goes back unless the mark fell, so a program of equal steps, each of them no longer than the window,
//            makes no driver call because of this layer; one thread trims at a time, and the others pass by.
// order:     the pool's. Allocations are counted, not time. What 'trim' cannot have: of a stream that work is enqueued on
//            all the time, a pool that knows one event of it (reuse::stream_ordered) may be told at no look that it has
//            passed; call 'settle' where the program can wait.
// cost:      three relaxed atomic additions for a block; after a fall a 'trim' or several, which do not wait for the device
//            where memory is mapped (upstream::virtual_memory, but for reuse::immediate) or CUDA's own pool's. Chunks of
//            cudaMalloc and its kin do: cudaFree waits for all work on the device.
// not for:   a program that stops allocating, or a pool that others use past this layer: call 'trim'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Constants of 'watermark'; derive from it to change one.
struct watermark_tuning {
    /// Allocations from one look to the next, 1 or more. More: a look, which costs as much as a few allocations, and may
    /// trim, is had less often; less: memory that work still used at one look goes back sooner.
    static constexpr std::size_t allocations_between_looks = 512;
    /// Looks in half a window, 1 or more: memory goes back after at most three times as many at which less is needed. A
    /// step of the program should have no more than twice as many, or what it needs once goes back and is got again each
    /// time. More: longer steps; less: memory goes back sooner.
    static constexpr std::size_t looks_in_half_window = 16;
    /// What is kept above the mark, in percent of it. More: fewer driver calls where the need goes up and down; less: a
    /// smaller footprint.
    static constexpr std::size_t slack_percent = 25;
    /// The same in bytes; the greater of the two counts. A few of the pool's chunks: less is not worth driver calls.
    static constexpr std::size_t slack_bytes = 32 * MiB;
};

namespace detail {
template <class T>
using tunes_watermark = decltype(T::allocations_between_looks + T::looks_in_half_window + T::slack_percent + T::slack_bytes);
} // namespace detail

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool, class Tuning>
class watermark : public layered<watermark<Pool, Tuning>, Pool> {
    using wrapper = layered<watermark<Pool, Tuning>, Pool>;
    static_assert(contract::holds<contract::trims_to, typename wrapper::pool_type>,
                  "weir: layer::watermark needs a pool with 'std::size_t trim(std::size_t keep_bytes)', the bytes given "
                  "back, and 'std::size_t reserved_bytes() const'");
    static_assert(contract::holds<detail::tunes_watermark, Tuning>,
                  "weir: the tuning slot of layer::watermark needs the four numbers of weir::layer::watermark_tuning; derive "
                  "from it");
    static_assert(Tuning::allocations_between_looks >= 1 && Tuning::looks_in_half_window >= 1,
                  "weir: layer::watermark needs a window of at least one allocation: its 'allocations_between_looks' and "
                  "'looks_in_half_window' must be 1 or more");

public:
    /// `arguments`: the wrapped pool's.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit watermark(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    watermark() : wrapper(std::in_place) {}

    /// As the wrapped pool's. At a look it may then trim the pool, and blocks as that does; a failure of that
    /// is no failure of the allocation.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block) {
            std::size_t const more = counted(bytes);
            base::raise(peak_requested_bytes_, requested_bytes_.fetch_add(more, base::memory_order_relaxed) + more);
            if ((allocations_.fetch_add(1, base::memory_order_relaxed) + 1) % Tuning::allocations_between_looks == 0)
                look();
        }
        return block;
    }

    /// As the wrapped pool's; gives nothing back by itself.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (p)
            base::lower(requested_bytes_, counted(bytes));
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

    /// The most bytes in use through this layer, each block rounded up to the pool's default alignment, over the
    /// last whole window; 0 before the first half of one has ended.
    std::size_t peak_in_use_bytes() const noexcept { return high_water_bytes_.load(base::memory_order_relaxed); }
    /// All bytes that this layer gave back.
    std::uint64_t given_back_bytes() const noexcept { return given_back_bytes_.load(base::memory_order_relaxed); }

private:
    static constexpr unsigned longest_pause = 16; // looks between two trims, after several in vain

    static constexpr std::size_t counted(std::size_t bytes) noexcept {
        return base::align_up(bytes, wrapper::default_alignment);
    }

    static constexpr std::size_t with_slack(std::size_t mark) noexcept {
        std::size_t const part = mark / 100 * Tuning::slack_percent;
        std::size_t const slack = part > Tuning::slack_bytes ? part : Tuning::slack_bytes;
        return base::add_overflows(mark, slack) ? SIZE_MAX : mark + slack;
    }

    // Not inlined, so that the usual path stays short.
    [[gnu::noinline]] void look() noexcept {
        if (!looking_.try_lock())
            return; // another thread is at it
        if (++looks_ % Tuning::looks_in_half_window == 0)
            begin_half_window();
        try {
            if (excess_)
                give_back(with_slack(peak_in_use_bytes()));
        } catch (...) { // CUDA failed, or the host has no memory: the next look tries again
        }
        looking_.unlock();
    }

    void begin_half_window() noexcept {
        // What is live raises the next half's again with its first allocation.
        std::size_t const peak = peak_requested_bytes_.exchange(0, base::memory_order_relaxed);
        std::size_t const mark = peak > former_peak_ ? peak : former_peak_;
        former_peak_ = peak;
        high_water_bytes_.store(mark, base::memory_order_relaxed);
        bool const fell = with_slack(mark) < most_;
        if (fell) {
            excess_ = true;
            held_ = SIZE_MAX;
            pause_ = left_ = 1;
        }
        if (fell || most_ < mark)
            most_ = mark;
    }

    void give_back(std::size_t kept) {
        std::size_t const reserved = this->pool_.reserved_bytes();
        // What was got again after a trim was needed, and would be got again each time.
        excess_ = reserved > kept && reserved <= held_;
        if (!excess_ || --left_ != 0)
            return;
        left_ = 1; // should 'trim' throw
        std::size_t const given_back = this->pool_.trim(kept);
        given_back_bytes_.fetch_add(given_back, base::memory_order_relaxed);
        held_ = this->pool_.reserved_bytes();
        pause_ = given_back != 0 ? 1 : pause_ < longest_pause ? 2 * pause_ : longest_pause;
        left_ = pause_;
    }

    base::atomic<std::size_t> requested_bytes_{0};
    base::atomic<std::size_t> peak_requested_bytes_{0}; // of the half window that is under way
    base::atomic<std::size_t> allocations_{0};
    base::atomic<std::size_t> high_water_bytes_{0};
    base::atomic<std::uint64_t> given_back_bytes_{0};
    base::spin_lock looking_; // guards the rest
    std::size_t looks_ = 0;
    std::size_t former_peak_ = 0;
    std::size_t most_ = 0;        // the highest mark since the last fall
    std::size_t held_ = SIZE_MAX; // after the last trim
    bool excess_ = false;         // since the last fall the pool holds more than it should
    unsigned pause_ = 1;          // looks from a trim to the next
    unsigned left_ = 1;           // of them
};

} // namespace layer
} // namespace v0
} // namespace weir
