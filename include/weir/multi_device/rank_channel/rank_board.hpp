// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do ranks exchange records in memory that they share?
//
// Each rank has a slot with the number of the exchange that it came to last, and two records, since a quick rank may write the
// next one while a slow one still reads. A rank writes its record, publishes the number, and looks until all have come to that
// exchange, or its patience ends. One word holds the verdict on the exchanges: rank after rank tries to write 'complete' when
// it has seen all, and 'broken by k' when it has not seen k in time. The first one counts for all. So no rank goes on while
// another one has given up.
//
// invariant: the verdict of an exchange is written once, and only after that of the one before.
// order:     a rank's record is written before its number, and read after it.
// cost:      9 KiB a rank.
// not for:   ranks whose memory is not one: this word and these slots must be seen by all.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

/// Lies in zeroed memory. Any thread of any process.
class rank_board {
public:
    static constexpr std::size_t most_bytes = 4096;
    static constexpr int most_ranks = 1024;

    /// The bytes of a board of so many ranks.
    static constexpr std::size_t bytes(int ranks) noexcept {
        return sizeof(rank_board) + static_cast<std::size_t>(ranks) * sizeof(slot);
    }

    /// Notes that so many ranks meet here. False if somebody said another number, or this is no board.
    bool meet(int ranks) noexcept {
        std::uint64_t const wanted = mark + static_cast<std::uint64_t>(ranks);
        std::uint64_t said = 0;
        while (said == 0 && !ranks_.compare_exchange_weak(said, wanted, base::memory_order_acq_rel)) {
        }
        return said == 0 || said == wanted;
    }
    /// Makes a rank this caller's. False if somebody has it.
    bool take(int rank) noexcept { return slots()[rank].taken.exchange(1, base::memory_order_acq_rel) == 0; }

    /// The exchange of number `round`, from 1. While it waits it asks goes_on(turns). Returns -1, or the rank that did not
    /// come.
    template <class GoesOn>
    int exchange(int rank, int ranks, std::uint64_t round, void const* mine, std::size_t bytes, void* all,
                 GoesOn const& goes_on) noexcept {
        slot& own = slots()[rank];
        own.sizes[round % 2] = static_cast<std::uint32_t>(bytes);
        if (bytes != 0)
            std::memcpy(own.records[round % 2], mine, bytes);
        own.round.store(round, base::memory_order_release);
        for (std::uint64_t turns = 0;; ++turns) {
            std::uint64_t const now = verdict_.load(base::memory_order_acquire);
            if (now >= complete(round) && !is_broken(now, round))
                break;
            if (is_broken(now, round))
                return static_cast<int>(now % complete(1)) - 1;
            bool const may_wait = first_absent(ranks, round) < 0 || goes_on(turns);
            int const absent = first_absent(ranks, round); // anew: who came meanwhile is not missing
            if (absent < 0)
                decide(round, complete(round));
            else if (!may_wait)
                decide(round, complete(round) + static_cast<std::uint64_t>(absent) + 1);
        }
        for (int each = 0; each < ranks && bytes != 0; ++each)
            std::memcpy(static_cast<unsigned char*>(all) + static_cast<std::size_t>(each) * bytes,
                        slots()[each].records[round % 2], bytes);
        return -1;
    }

    /// The first rank whose record in that exchange, which was complete, has another size than rank 0's; -1: none. Before this
    /// rank's next exchange.
    int other_size(int ranks, std::uint64_t round) const noexcept {
        for (int each = 1; each < ranks; ++each)
            if (size_of(each, round) != size_of(0, round))
                return each;
        return -1;
    }
    std::size_t size_of(int rank, std::uint64_t round) const noexcept { return slots()[rank].sizes[round % 2]; }

private:
    struct alignas(64) slot {
        base::atomic<std::uint64_t> round;
        base::atomic<unsigned> taken;
        std::uint32_t sizes[2];
        alignas(64) unsigned char records[2][most_bytes];
    };

    // The verdict 'complete', on which that of the next exchange follows; 'broken by k' is k + 1 more, and final.
    static constexpr std::uint64_t complete(std::uint64_t round) noexcept { return round << 16; }
    // An exchange that broke later leaves this one complete.
    static bool is_broken(std::uint64_t verdict, std::uint64_t round) noexcept {
        return verdict % complete(1) != 0 && verdict < complete(round + 1);
    }
    void decide(std::uint64_t round, std::uint64_t verdict) noexcept {
        std::uint64_t before = complete(round - 1);
        static_cast<void>(verdict_.compare_exchange_weak(before, verdict, base::memory_order_acq_rel));
    }
    int first_absent(int ranks, std::uint64_t round) const noexcept {
        for (int each = 0; each < ranks; ++each)
            if (slots()[each].round.load(base::memory_order_acquire) < round)
                return each;
        return -1;
    }
    slot* slots() noexcept { return reinterpret_cast<slot*>(this + 1); }
    slot const* slots() const noexcept { return reinterpret_cast<slot const*>(this + 1); }

    static constexpr std::uint64_t mark = 0x7765697200000000u; // "weir"

    alignas(64) base::atomic<std::uint64_t> verdict_;
    base::atomic<std::uint64_t> ranks_; // how many, and the mark
};

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
