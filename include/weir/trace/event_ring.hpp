// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do many threads write down events at once, in memory of a fixed size?
//
// The ring is cut into blocks of some hundred events. A thread writes into the block of its lane; lanes are the shards of
// base/threads/shards.hpp, so a thread that finds its lane taken uses another one, and waits for nobody. When a block is full,
// the lane takes the next one in the ring by a flag, and passes over those that others have. What is in a block that is taken
// again is lost, and counted. Whoever drains or copies the ring takes the blocks in the same way.
//
// invariant: a block belongs to one lane or to one reader, or to nobody. Every event that was written is drained once, or
//            counted as lost. The events of a block are in the order in which they were written, and in that of their time.
// order:     readers take turns. Each sees every event whose 'write' returned before it began, and that is still there.
// cost:      a lane's lock and one store of 48 bytes, some 15 ns with the clock; no system call and no allocation.
// not for:   events that may not be lost: drain more often than the ring is full.

#include <cstddef>
#include <cstdint>
#include <weir/base/growing_array.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/shards.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/trace/clock.hpp>
#include <weir/trace/recorded_event.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// Any thread may call any member.
class event_ring {
public:
    /// Room for at least `events` events. Throws std::bad_alloc.
    explicit event_ring(std::size_t events, clock const& time = clock()) : time_(time), block_events_(events_a_block(events)) {
        std::size_t const count = events / block_events_ + (events % block_events_ != 0);
        blocks_.resize(count < 2 ? 2 : count);
        events_.resize(blocks_.size() * block_events_);
    }
    event_ring(event_ring const&) = delete;
    event_ring& operator=(event_ring const&) = delete;

    /// Writes `one` with the present time and the calling thread's number. Never waits for another thread's call.
    [[gnu::always_inline]] void write(event one) noexcept {
        auto const mine = lanes_.mine();
        if (mine->left == 0 && !take_block(*mine.get()))
            return;
        one.thread = static_cast<std::uint32_t>(base::this_thread());
        one.ticks = time_.ticks(); // with the lane's lock, so that a block's events are in order
        *mine->next++ = one;
        --mine->left;
        // The next lock waits until what was stored before it is in the cache: so the lines that come next are fetched now.
        __builtin_prefetch(mine->next + events_ahead, 1);
    }

    /// Moves the events out. Calls take(first, count) for each block that holds any: `count` events in the order of their time,
    /// which the call may change. Other threads may go on writing.
    template <class Take>
    void drain(Take const& take) {
        each_block<true>(take);
    }
    /// The same, but the events stay in the ring, and the call may not change them.
    template <class See>
    void copy(See const& see) {
        each_block<false>(see);
    }

    /// Calls see(event) for the events that the ring holds, which stay there: each at least once, lane by lane and block by
    /// block, so not in the order of their time. Other threads may go on writing.
    template <class See>
    void visit(See const& see) noexcept {
        base::lock_guard<base::mutex> const turn(readers_);
        for (lane& each : lanes_) {
            base::locked<lane> const held(each);
            if (each.own)
                see_each(each.next - (block_events_ - each.left), block_events_ - each.left, see);
        }
        for (std::size_t at = 0; at < blocks_.size(); ++at) {
            block& each = blocks_[at];
            if (each.is_taken.exchange(true, base::memory_order_acquire))
                continue; // its lane took it, and was asked above or goes on meanwhile
            see_each(first_of(at), each.size, see);
            each.is_taken.store(false, base::memory_order_release);
        }
    }

    /// How many events were lost so far: written over before they were drained, or without a block to go to.
    std::uint64_t lost() const noexcept { return lost_.load(base::memory_order_relaxed); }
    /// How many events there is room for.
    std::size_t capacity() const noexcept { return events_.size(); }
    /// How many blocks it consists of.
    std::size_t blocks() const noexcept { return blocks_.size(); }
    clock const& time() const noexcept { return time_; }

private:
    struct block {
        base::atomic<bool> is_taken{false};
        std::size_t size = 0; // whoever has taken it writes and reads this
        block() noexcept = default;
        block(block&&) noexcept {} // before the ring is used
    };
    struct lane {
        base::spin_lock lock;
        event* next = nullptr;
        std::size_t left = 0;
        block* own = nullptr;
    };
    // Leaves a block, also if whoever took its events threw.
    template <bool Empties>
    struct left_later {
        block& of;
        ~left_later() {
            if (Empties)
                of.size = 0;
            of.is_taken.store(false, base::memory_order_release);
        }
    };

    static constexpr std::size_t events_ahead = 6; // 288 bytes: the events of some 300 ns

    // So many that the lanes together leave little of the ring unused, and that the next block is looked for rarely.
    static std::size_t events_a_block(std::size_t events) noexcept {
        std::size_t const part = events / (4 * base::thread_shards);
        return part < 8 ? 8 : part > 512 ? 512 : part;
    }

    event* first_of(std::size_t at) noexcept { return events_.data() + at * block_events_; }

    template <class See>
    static void see_each(event const* first, std::size_t count, See const& see) noexcept {
        for (std::size_t i = 0; i < count; ++i)
            see(first[i]);
    }

    template <bool Empties, class Take>
    void each_block(Take const& take) {
        base::lock_guard<base::mutex> const turn(readers_);
        for (lane& each : lanes_) {
            base::locked<lane> const held(each);
            leave_block(each);
        }
        for (std::size_t at = 0; at < blocks_.size(); ++at) {
            block& each = blocks_[at];
            if (each.is_taken.exchange(true, base::memory_order_acquire))
                continue; // its lane took it after the loop above: it has none of the events that were written before
            left_later<Empties> const done{each};
            if (each.size != 0)
                take(first_of(at), each.size);
        }
    }

    void leave_block(lane& of) noexcept {
        if (!of.own)
            return;
        of.own->size = block_events_ - of.left;
        of.own->is_taken.store(false, base::memory_order_release);
        of.own = nullptr;
        of.left = 0;
    }

    // False: all blocks are taken, and the event that was to be written is lost.
    [[gnu::noinline]] bool take_block(lane& of) noexcept {
        leave_block(of);
        for (std::size_t tries = 0; tries < blocks_.size(); ++tries) {
            std::size_t const at = static_cast<std::size_t>(next_.fetch_add(1, base::memory_order_relaxed) % blocks_.size());
            block& found = blocks_[at];
            if (found.is_taken.exchange(true, base::memory_order_acquire))
                continue;
            lost_.fetch_add(found.size, base::memory_order_relaxed);
            found.size = 0;
            of.own = &found;
            of.next = first_of(at);
            of.left = block_events_;
            return true;
        }
        lost_.fetch_add(1, base::memory_order_relaxed);
        return false;
    }

    clock const time_;
    std::size_t const block_events_;
    base::growing_array<event> events_;
    base::growing_array<block> blocks_;
    base::atomic<std::uint64_t> next_{0}; // which block is taken next, in all
    base::atomic<std::uint64_t> lost_{0};
    base::shards<lane> lanes_;
    base::mutex readers_;
};

} // namespace trace
} // namespace v0
} // namespace weir
