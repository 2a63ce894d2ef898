// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool stand on a board that other processes watch?
//
// The layer counts nothing. If a watcher has asked, the next allocation first writes to the board (trace/watch_board.hpp) what
// the pool knows of itself anyway: its state, its peaks, and what went through each stream's memory. Over layer::statistics it
// tells requested bytes, too; over layer::record a dump is a recording.
//
//     weir::trace::watch_board board("server");
//     weir::layer::watch<weir::device_pool> pool(board, weir::pool_options{}.name("frames"));
//
// invariant: the wrapped pool sees the same calls. An answer that fails fails no call.
// order:     an answer comes before the allocation, and what it tells is so at some moment of it.
// cost:      a load and a branch an allocation, and nothing a free. Of an answer: 'state', and a lock a stream.
// not for:   what the layers around it know: it looks down alone.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/trace/board_layout.hpp>
#include <weir/trace/clock.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/trace/watch_board.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class watch : public resource::layered<watch<Pool>, Pool> {
    using wrapper = resource::layered<watch<Pool>, Pool>;

public:
    using typename wrapper::pool_type;

    /// `board` outlives this layer. `arguments`: for the wrapped pool's constructor. Throws what that throws; std::bad_alloc.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit watch(trace::watch_board& board, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), board_(board), shown_(this->pool_) {
        if (trace::board_pool* const place = board.join(shown_))
            asked_ = &place->asked;
    }
    ~watch() { board_.leave(shown_); }

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        answer_if_asked();
        return this->pool_.try_allocate(stream, bytes, alignment);
    }
    /// The same, for the line `where`.
    [[nodiscard]] void* try_allocate_at(call_site const& where, stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = wrapper::default_alignment) {
        answer_if_asked();
        return this->pool_.try_allocate_at(where, stream, bytes, alignment);
    }
    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
    using wrapper::deallocate;

    // As the wrapped pool's.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() { return this->pool_.mark(); }
    template <class Mark, class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) { this->pool_.rewind(to); }
    template <class P = pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() { this->pool_.clear(); }

private:
    using sees_stream = void (*)(base::stream_usage const&);
    template <class P>
    using counts_streams = decltype(std::declval<P const&>().visit_streams(std::declval<sees_stream>()));
    template <class P>
    using knows_peak = decltype(std::declval<P const&>().peak_reserved_bytes());
    template <class P>
    using is_statistics = decltype(std::declval<P const&>().total_blocks());
    template <class P>
    using records = decltype(std::declval<P&>().recorder());

    // The rows of a pool's streams. Those that ended are one row, and so are those for which there is no room.
    struct stream_rows {
        base::stream_usage rows[trace::most_board_streams];
        std::size_t size = 0;

        void add(base::stream_usage const& one) noexcept {
            if (one.taken_blocks == 0 && one.given_blocks == 0 && one.free_bytes == 0)
                return;
            std::size_t at = 0;
            while (at < size && rows[at].stream != one.stream)
                ++at;
            bool const is_full = at == trace::most_board_streams;
            at -= is_full;
            if (at == size) {
                rows[size++] = one;
                return;
            }
            base::stream_usage& to = rows[at];
            to.stream = is_full ? trace::pool_figures::other_streams : to.stream;
            to.taken_bytes += one.taken_bytes;
            to.taken_blocks += one.taken_blocks;
            to.given_bytes += one.given_bytes;
            to.given_blocks += one.given_blocks;
            to.free_bytes += one.free_bytes;
        }
    };

    // What the board knows of this layer.
    class shown final : public trace::watched_pool {
    public:
        explicit shown(pool_type& pool) noexcept : pool_(pool) {}

        void publish(trace::board_pool& to) const override {
            trace::pool_figures now = figures_of(pool_.state());
            stream_rows streams;
            if constexpr (contract::holds<counts_streams, pool_type>) {
                pool_.visit_streams([&](base::stream_usage const& one) { streams.add(one); });
                now.taken_blocks = now.taken_bytes = now.given_blocks = now.given_bytes = 0;
                for (base::stream_usage const& each : streams.rows) {
                    now.taken_blocks += each.taken_blocks;
                    now.taken_bytes += each.taken_bytes;
                    now.given_blocks += each.given_blocks;
                    now.given_bytes += each.given_bytes;
                }
            } else if constexpr (contract::holds<is_statistics, pool_type>) {
                now.taken_blocks = pool_.total_blocks();
                now.taken_bytes = pool_.total_bytes();
                now.given_blocks = now.taken_blocks - pool_.live_blocks();
                now.given_bytes = now.taken_bytes - pool_.requested_bytes();
            }
            if constexpr (contract::holds<is_statistics, pool_type>) {
                now.requested_bytes = pool_.requested_bytes();
                now.peak_requested_bytes = pool_.peak_requested_bytes();
            }
            if constexpr (contract::holds<knows_peak, pool_type>)
                now.peak_reserved_bytes = pool_.peak_reserved_bytes();
            now.device = static_cast<std::uint64_t>(std::int64_t{pool_.device()}); // any_device is below zero: not known
            now.streams = streams.size;
            for (std::size_t i = 0; i < streams.size; ++i)
                to.streams[i].write(streams.rows[i]);
            to.figures.write(now);
            to.answers.fetch_add(1, base::memory_order_release);
        }
        text report() const override { return pool_.full_report(); }
        trace::recorder* tape() const noexcept override {
            if constexpr (contract::holds<records, pool_type>)
                return &pool_.recorder();
            else
                return nullptr;
        }
        bool any_thread() const noexcept override { return wrapper::thread_safe; }

    private:
        static trace::pool_figures figures_of(memory_report const& state) noexcept {
            trace::pool_figures now;
            std::size_t const size = state.name.size() < sizeof now.name ? state.name.size() : sizeof now.name - 1;
            for (std::size_t i = 0; i < size; ++i)
                now.name[i] = state.name.data()[i];
            now.time_ns = trace::nanoseconds_of(CLOCK_MONOTONIC);
            now.in_use_bytes = state.in_use_bytes;
            now.reserved_bytes = state.reserved_bytes;
            now.limit_bytes = state.limit_bytes;
            now.largest_free_bytes = state.largest_free_bytes;
            now.live_blocks = state.live_blocks;
            now.chunks = state.chunks;
            now.waits = state.waits;
            now.unsettled_bytes = state.unsettled_bytes;
            now.lost_bytes = state.lost_bytes;
            return now;
        }

        pool_type& pool_;
    };

    [[gnu::always_inline]] void answer_if_asked() noexcept {
        if (asked_->load(base::memory_order_relaxed) != 0)
            answer();
    }
    // Not inlined, so that a call that nobody watches stays short.
    [[gnu::noinline]] void answer() noexcept { board_.answer(&shown_); }

    trace::watch_board& board_;
    shown shown_;
    base::atomic<std::uint32_t> const never_{0}; // of a pool for which the board has no place
    base::atomic<std::uint32_t> const* asked_ = &never_;
};

} // namespace layer
} // namespace v0
} // namespace weir
