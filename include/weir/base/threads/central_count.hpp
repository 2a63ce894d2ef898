// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do many threads keep one count, with a limit and a peak, and rarely meet?
//
// The centre grants units ahead of need. What a shard (shards.hpp) was granted and does not use is its credit. A thread takes
// from its shard's credit and gives back to it; only when that is used up, or has grown large, does it go to the centre. So
//
//     in use = granted - all credits,
//
// which is exact while nothing runs. The limit bounds what is granted, so it bounds what is in use at every moment. Where the
// centre has no room, the caller locks all shards, 'collect' takes the credits back, and the centre is asked once more: what
// is refused then did not fit at that moment.
//
// The peak is the greatest value of granted - least, where 'least' is the least credit that a shard had since it last was at
// the centre. The value is recorded before granted falls, by the shard that gives back; and a reader takes the value of this
// moment, with the least credits of all shards, into account. So no peak is missed. For let t be a moment, and let granted only
// rise from t to a moment when the value is recorded or read. A shard that was granted units meanwhile added at least as many
// to granted as its credit, and so its least credit, has. A shard that was not has a least credit of at most what it had at t.
// So the value is at least granted - all credits at t. With one thread there is one credit, and each of these figures is exact.
//
// invariant: granted <= limit. granted >= the sum of all credits, if each unit is given back once. peak >= whatever was in use;
//            it is exact with one thread, and else too high by at most the credits: `slack` units or 1/128 of the peak,
//            whichever is more. With a limit of less than 2 * slack they are half of it.
// order:     relaxed, which suffices. A credit is guarded by its shard's lock. 'granted' is one atomic that is changed only by
//            compare and exchange, so each change sees the one before, wherever the figures beside it are. A reader that runs
//            at the same time as calls may miss what they do.
// cost:      a few instructions under the shard's lock; about every `slack / 128` units one or two compare and exchanges of a
//            cache line that all threads share.
// not for:   counts that only grow: a plain figure a shard does for those.

#include <cstddef>
#include <cstdint>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// The usual slack of a count of bytes: see 'central_count'.
inline constexpr std::uint64_t most_ahead_bytes = std::uint64_t{16} << 20;

class central_count;

/// A shard's part of a count: granted, and not in use. Its shard's lock guards it; any thread may read it.
class credit {
    friend class central_count;
    void set(std::uint64_t units) noexcept {
        left_.store(units, memory_order_relaxed);
        least_.store(units, memory_order_relaxed);
    }
    atomic<std::uint64_t> left_{0};
    atomic<std::uint64_t> least_{0}; // of 'left_', since the centre was last asked
};

/// `from`, `to`: a credit whose shard the caller has locked. `all`, `which`: the shards, and the credit in each.
class alignas(64) central_count {
public:
    /// `limit`: the most units in use. `slack`: about how many all credits may be together.
    central_count(std::uint64_t limit, std::uint64_t slack) noexcept
        : slack_(slack), limit_(limit), kept_(usually_kept()) {}

    /// Counts `units` more; false, and nothing is counted, if the credit and the centre have too few left.
    [[nodiscard]] bool take(credit& from, std::uint64_t units) noexcept {
        std::uint64_t const left = from.left_.load(memory_order_relaxed);
        if (left < units)
            return grant(from, units - left);
        from.left_.store(left - units, memory_order_relaxed);
        if (left - units < from.least_.load(memory_order_relaxed))
            from.least_.store(left - units, memory_order_relaxed);
        return true;
    }

    /// Counts `units` less, but not below zero as far as one shard can tell.
    void give(credit& to, std::uint64_t units) noexcept {
        std::uint64_t const granted = granted_.load(memory_order_relaxed);
        std::uint64_t left = to.left_.load(memory_order_relaxed);
        left = units > granted - left ? granted : left + units; // all units that exist are granted: else they were given twice
        if (left > most_kept(granted))
            give_back(to, left);
        else
            to.left_.store(left, memory_order_relaxed);
    }

    /// Whether a shard keeps less than that, so that each 'take' and 'give' goes to the centre. These two go there alone, and
    /// need no shard. They are for a count whose peak nobody asks for. Units may be given back either way.
    bool is_large(std::uint64_t units) const noexcept { return units > kept_.load(memory_order_relaxed); }
    [[nodiscard]] bool take_directly(std::uint64_t units) noexcept {
        std::uint64_t before = granted_.load(memory_order_relaxed);
        do {
            if (units > less(limit(), before))
                return false;
        } while (!granted_.compare_exchange_weak(before, before + units, memory_order_acquire));
        if (before + units <= limit())
            return true;
        lower(granted_, units); // 'set_limit' came between, and did not count these
        return false; // nothing is counted
    }
    void give_directly(std::uint64_t units) noexcept { lower(granted_, units); }

    /// Takes all credits back. The caller has locked all shards, so what is granted then is what is in use.
    template <class Shards, class Shard>
    void collect(Shards& all, credit Shard::*which) noexcept {
        raise(peak_, granted_without(all, which, &credit::least_));
        std::uint64_t sum = 0;
        for (Shard& each : all) { // first, so that no reader finds less in use than is
            sum += (each.*which).left_.load(memory_order_relaxed);
            (each.*which).set(0);
        }
        lower(granted_, sum);
    }

    /// Sets the peak to what is in use, after 'collect'.
    void reset_peak() noexcept { peak_.store(granted_.load(memory_order_relaxed), memory_order_relaxed); }

    /// What is in use, and the most that was. Any thread, without a lock.
    template <class Shards, class Shard>
    std::uint64_t in_use(Shards const& all, credit Shard::*which) const noexcept {
        return granted_without(all, which, &credit::left_);
    }
    template <class Shards, class Shard>
    std::uint64_t peak(Shards const& all, credit Shard::*which) const noexcept {
        raise(peak_, granted_without(all, which, &credit::least_)); // recorded, so that no later reader is told less
        return peak_.load(memory_order_relaxed);
    }
    std::uint64_t limit() const noexcept { return limit_.load(memory_order_relaxed); }
    /// What is in use stays, also above the new limit. The caller has locked all shards, and called 'collect'.
    void set_limit(std::uint64_t limit) noexcept {
        limit_.store(limit, memory_order_relaxed);
        // Either this counts what 'take_directly' takes now, or that one sees the new limit.
        std::uint64_t const granted = granted_.fetch_add(0, memory_order_acq_rel);
        kept_.store(granted > limit ? 0 : usually_kept(), memory_order_relaxed);
    }

private:
    static constexpr std::uint64_t grants_in_use = 64;  // a grant is at most this part of what is in use, ahead of need
    static constexpr std::uint64_t credits_in_use = 128; // and all credits are about this part, if that is more than 'slack'

    std::uint64_t usually_kept() const noexcept {
        return (slack_ < limit() / 2 ? slack_ : limit() / 2) / thread_shards;
    }
    // While more is in use than a new limit allows, credits keep nothing: what is given would be taken again there.
    std::uint64_t most_kept(std::uint64_t granted) const noexcept {
        std::uint64_t const part = granted / (credits_in_use * thread_shards), least = kept_.load(memory_order_relaxed);
        return least != 0 && part > least ? part : least;
    }

    // Makes `needed` units more of them, takes all of them out of the credit, and leaves there what is granted ahead of need.
    [[gnu::noinline]] bool grant(credit& to, std::uint64_t needed) noexcept {
        std::uint64_t before = granted_.load(memory_order_relaxed);
        std::uint64_t ahead = 0;
        do {
            std::uint64_t const all_room = less(limit(), before);
            if (needed > all_room)
                return false;
            std::uint64_t const room = all_room - needed;
            ahead = (before + needed) / grants_in_use;
            if (std::uint64_t const most = most_kept(before) / 2; ahead > most)
                ahead = most;
            if (ahead > room / (2 * thread_shards)) // near the limit all shards together keep no more than half of the room
                ahead = room / (2 * thread_shards);
        } while (!granted_.compare_exchange_weak(before, before + needed + ahead, memory_order_relaxed));
        to.set(ahead);
        if (kept_.load(memory_order_relaxed) == 0) // so what is in use came below a new limit
            kept_.store(usually_kept(), memory_order_relaxed);
        return true;
    }

    // `left`: what the credit has now, too much.
    [[gnu::noinline]] void give_back(credit& from, std::uint64_t left) noexcept {
        std::uint64_t const least = from.least_.load(memory_order_relaxed);
        std::uint64_t before = granted_.load(memory_order_relaxed);
        raise(peak_, less(before, least));
        std::uint64_t const keeps = most_kept(before) / 2;
        from.set(keeps); // first, so that no reader finds less in use than is
        while (!granted_.compare_exchange_weak(before, less(before, left - keeps), memory_order_relaxed))
            raise(peak_, less(before, least));
    }

    static constexpr std::uint64_t less(std::uint64_t from, std::uint64_t by) noexcept { return from > by ? from - by : 0; }

    template <class Shards, class Shard>
    std::uint64_t granted_without(Shards const& all, credit Shard::*which,
                                  atomic<std::uint64_t> credit::*figure) const noexcept {
        std::uint64_t sum = 0;
        for (Shard const& each : all)
            sum += (each.*which.*figure).load(memory_order_relaxed);
        return less(granted_.load(memory_order_relaxed), sum); // read last: what is granted meanwhile is not missed
    }

    std::uint64_t const slack_;
    atomic<std::uint64_t> limit_;
    atomic<std::uint64_t> kept_; // at least so much may a credit be
    atomic<std::uint64_t> granted_{0};
    mutable atomic<std::uint64_t> peak_{0};
};

} // namespace base
} // namespace v0
} // namespace weir
