// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When does a pool give back memory that its program needed once and does not need any more?
//
// A pool keeps the memory that it got, since the next step of the program usually needs it again. But a program changes: it
// loads with 40 GiB and then serves with 10. This layer notices by the high-water mark, the most bytes that were in use lately.
//
// 1. Lately: 'lately' is a window of a fixed number of allocations, in two halves. The mark is the greater of the peaks of the
//    half that ended last and of the half before. As a new half begins, the oldest peak is forgotten, and the mark can fall.
// 2. Has it fallen: if the mark and some slack are less than the highest mark so far, the program has changed.
// 3. Give back: the pool's own 'trim' then gives back free memory beyond the mark and its slack, inside an allocation; there
//    is no extra thread. What work still uses cannot go back yet, so the layer trims again at later looks, less and less often
//    while that is in vain.
// 4. Stop: when no more is held than the mark and its slack, or when the pool had to get more memory after a trim, which shows
//    that the memory was needed after all.
//
// invariant: nothing is given back unless the mark fell. So a program whose steps are equal, and each no longer than the
//            window, makes no driver call because of this layer. One thread trims at a time, and other threads do not wait
//            for it.
// order:     that of the wrapped pool. The window counts allocations, not time. On a stream that always has work enqueued, a
//            pool that knows only one event of it (reuse::stream_ordered) may never see at a look that the event has passed,
//            so 'trim' never gets that memory; call 'settle' where the program can wait.
// cost:      three relaxed atomic additions for a block. After the mark fell, one or several calls of 'trim'. They do not
//            wait for the device if the memory is mapped (upstream::virtual_memory, except with reuse::immediate) or comes
//            from CUDA's own pool. With chunks from cudaMalloc and similar calls they do: cudaFree waits for all work on the
//            device.
// not for:   a program that stops allocating, or a pool that others use without this layer: call 'trim'.

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

/// The constants of 'watermark'. To change one, derive a struct from this one.
struct watermark_tuning {
    /// A look is the moment when the layer checks the mark, and may trim. This is the number of allocations from one look to
    /// the next, 1 or more. Greater: looks are rarer; one costs as much as a few allocations. Smaller: memory that work still
    /// used at one look is given back sooner.
    static constexpr std::size_t allocations_between_looks = 512;
    /// The number of looks in half a window, 1 or more. Memory goes back once less was needed for at most three times as many
    /// looks. A step of the program should take at most twice as many looks; otherwise memory that it needs once a step goes
    /// back and is got again each time. Greater: allows longer steps. Smaller: memory goes back sooner.
    static constexpr std::size_t looks_in_half_window = 16;
    /// How much is kept beyond the mark, in percent of it. Greater: fewer driver calls if the need goes up and down. Smaller:
    /// a smaller footprint.
    static constexpr std::size_t slack_percent = 25;
    /// How much is kept beyond the mark, in bytes; the greater of the two counts. It should be a few of the pool's chunks,
    /// since less is not worth driver calls.
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
    static_assert(contract::returns<std::size_t, contract::has_trim, typename wrapper::pool_type, std::size_t> &&
                      contract::returns<std::size_t, contract::has_reserved_bytes, typename wrapper::pool_type>,
                  "weir: layer::watermark needs a pool with 'std::size_t trim(std::size_t keep_bytes)', the bytes given "
                  "back, and 'std::size_t reserved_bytes() const'");
    static_assert(contract::holds<detail::tunes_watermark, Tuning>,
                  "weir: the tuning slot of layer::watermark needs the four numbers of weir::layer::watermark_tuning; derive "
                  "from it");
    static_assert(Tuning::allocations_between_looks >= 1 && Tuning::looks_in_half_window >= 1,
                  "weir: layer::watermark needs a window of at least one allocation: its 'allocations_between_looks' and "
                  "'looks_in_half_window' must be 1 or more");

public:
    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit watermark(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    watermark() : wrapper(std::in_place) {}

    /// As the wrapped pool's. At a look it may then trim the pool, and it blocks if 'trim' does. If that fails, the
    /// allocation still succeeds.
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

    /// As the wrapped pool's. A free gives no memory back to the upstream.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (p)
            base::lower(requested_bytes_, counted(bytes));
        this->pool_.deallocate(stream, p, bytes, alignment);
    }

    /// The most bytes that were in use through this layer during the last whole window, with each block rounded up to the
    /// pool's default alignment; 0 until the first half of a window has ended.
    std::size_t peak_in_use_bytes() const noexcept { return high_water_bytes_.load(base::memory_order_relaxed); }
    /// How many bytes this layer gave back in all.
    std::uint64_t given_back_bytes() const noexcept { return given_back_bytes_.load(base::memory_order_relaxed); }

private:
    static constexpr unsigned longest_pause = 16; // the most looks between two trims, reached after several trims in vain

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
            if (gives_back_)
                give_back(with_slack(peak_in_use_bytes()));
        } catch (...) { // CUDA failed, or the host has no memory: the next look tries again
        }
        looking_.unlock();
    }

    void begin_half_window() noexcept {
        // The next allocation raises the new half's peak to at least what is live.
        std::size_t const peak = peak_requested_bytes_.exchange(0, base::memory_order_relaxed);
        std::size_t const mark = peak > former_peak_ ? peak : former_peak_;
        former_peak_ = peak;
        high_water_bytes_.store(mark, base::memory_order_relaxed);
        bool const fell = with_slack(mark) < highest_mark_;
        if (fell) {
            gives_back_ = true;
            held_after_trim_ = SIZE_MAX;
            looks_between_trims_ = looks_to_next_trim_ = 1;
        }
        if (fell || highest_mark_ < mark)
            highest_mark_ = mark;
    }

    void give_back(std::size_t kept) {
        std::size_t const reserved = this->pool_.reserved_bytes();
        // If the pool got more memory after a trim, that memory was needed, and would be got again after each trim.
        gives_back_ = reserved > kept && reserved <= held_after_trim_;
        if (!gives_back_ || --looks_to_next_trim_ != 0)
            return;
        looks_to_next_trim_ = 1; // in case 'trim' throws
        std::size_t const given_back = this->pool_.trim(kept);
        given_back_bytes_.fetch_add(given_back, base::memory_order_relaxed);
        held_after_trim_ = this->pool_.reserved_bytes();
        if (given_back != 0)
            looks_between_trims_ = 1;
        else if (looks_between_trims_ < longest_pause)
            looks_between_trims_ *= 2;
        looks_to_next_trim_ = looks_between_trims_;
    }

    base::atomic<std::size_t> requested_bytes_{0};
    base::atomic<std::size_t> peak_requested_bytes_{0}; // of the half window that is under way
    base::atomic<std::size_t> allocations_{0};
    base::atomic<std::size_t> high_water_bytes_{0};
    base::atomic<std::uint64_t> given_back_bytes_{0};
    base::spin_lock looking_; // guards the members below
    std::size_t looks_ = 0;
    std::size_t former_peak_ = 0;            // of the half window before
    std::size_t highest_mark_ = 0;           // since the mark last fell
    std::size_t held_after_trim_ = SIZE_MAX; // bytes; SIZE_MAX: no trim since the mark fell
    bool gives_back_ = false;                // the mark fell, and the pool has held more than it should since then
    unsigned looks_between_trims_ = 1;
    unsigned looks_to_next_trim_ = 1;
};

} // namespace layer
} // namespace v0
} // namespace weir
