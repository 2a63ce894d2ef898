// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What lies in the segment of memory that a program shares with whoever watches it?
//
// A head that says whose segment it is, and a place for each pool. The watcher asks, the program answers: a watcher sets a
// pool's 'asked', and the pool's next allocation, or the board's 'poll', clears that and writes the pool's figures. So a
// program that nobody watches writes nothing. A watcher that wants rates asks twice.
//
// invariant: the layout changes only with 'board_version'. No lock is in it; the figures are sequence-locked.
// order:     the head is read once 'is_ready' is not 0.
// cost:      78 KiB of shared memory.
// not for:   more than 32 pools, and 32 streams of each: further pools are counted, further streams added up.

#include <cstddef>
#include <cstdint>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/usage.hpp>
#include <weir/trace/watch_board/sequenced.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

inline constexpr char board_mark[8] = {'w', 'e', 'i', 'r', 't', 'o', 'p', '\0'};
inline constexpr std::uint32_t board_version = 1;
inline constexpr std::size_t most_board_pools = 32;
inline constexpr std::size_t most_board_streams = 32;
/// Segments are called 'weir.', the process's number, '.', and what tells its boards apart.
inline constexpr char board_prefix[] = "weir.";

/// What a pool says of itself; sizes in bytes. UINT64_MAX: not known, or no limit.
struct pool_figures {
    static constexpr std::uint64_t unknown = UINT64_MAX;
    /// In base::stream_usage::stream: all streams that had no place.
    static constexpr std::uint64_t other_streams = UINT64_MAX - 1;

    char name[64] = {};
    std::uint64_t time_ns = 0;          ///< when that was, on CLOCK_MONOTONIC
    std::uint64_t device = unknown;     ///< its number
    std::uint64_t in_use_bytes = 0;     ///< these as in memory_report
    std::uint64_t reserved_bytes = 0;
    std::uint64_t limit_bytes = unknown;
    std::uint64_t largest_free_bytes = unknown;
    std::uint64_t live_blocks = 0;
    std::uint64_t chunks = 0;
    std::uint64_t waits = 0;
    std::uint64_t unsettled_bytes = 0;
    std::uint64_t lost_bytes = 0;
    std::uint64_t peak_reserved_bytes = unknown;
    std::uint64_t requested_bytes = unknown; ///< this and its peak: if layer::statistics counts them
    std::uint64_t peak_requested_bytes = unknown;
    std::uint64_t taken_blocks = unknown; ///< handed out since the pool began, and given back: if the rule or a layer counts
    std::uint64_t taken_bytes = unknown;
    std::uint64_t given_blocks = unknown;
    std::uint64_t given_bytes = unknown;
    std::uint64_t streams = 0; ///< how many rows of streams follow
};

/// A pool's place.
struct alignas(64) board_pool {
    base::atomic<std::uint32_t> asked{0};   ///< not 0: a watcher wants the figures anew
    base::atomic<std::uint32_t> life{0};    ///< odd: a pool is here; it changes with each that comes or goes
    base::atomic<std::uint64_t> answers{0}; ///< how often figures were written
    detail::sequenced<pool_figures> figures;
    detail::sequenced<base::stream_usage> streams[most_board_streams];
};

/// How far a dump is that a watcher asked for.
enum class dump_state : std::uint32_t { none, asked, writing, written, failed };

struct board_head {
    char mark[8] = {};
    std::uint32_t version = 0;
    std::uint32_t segment_bytes = 0;
    std::uint64_t process = 0;
    std::uint64_t process_start = 0; ///< see process_start.hpp
    char name[64] = {};              ///< what the program calls the board
    base::atomic<std::uint32_t> is_ready{0};
    base::atomic<std::uint32_t> pools_without_place{0};
    base::atomic<std::uint32_t> dump{0};    ///< a dump_state; the watcher makes it 'asked', or 'none' again
    base::atomic<std::uint64_t> dump_by{0}; ///< the number of the watcher that asks; 0: nobody does
    char dump_path[1024] = {};              ///< the watcher's, written before 'asked'
    char dump_said[512] = {};               ///< the program's: what it wrote, or why not; written before that state

    /// Makes it `to` if it is `from`, and says whether it was: the program may begin while the watcher takes its question back.
    bool change_dump(dump_state from, dump_state to) noexcept {
        auto const due = static_cast<std::uint32_t>(from);
        std::uint32_t now = due;
        while (now == due && !dump.compare_exchange_weak(now, static_cast<std::uint32_t>(to), base::memory_order_acq_rel)) {
        }
        return now == due;
    }
};

struct board_layout {
    board_head head;
    board_pool pools[most_board_pools];
};
#ifndef WEIR_ATOMIC_HEADER
static_assert(sizeof(board_layout) == 1664 + most_board_pools * (64 + 256 + 64 * most_board_streams),
              "weir: a new layout has a new version");
#endif

} // namespace trace
} // namespace v0
} // namespace weir
