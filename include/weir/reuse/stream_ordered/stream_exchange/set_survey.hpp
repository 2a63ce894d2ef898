// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a search learn of other streams' sets, and how do the bytes of busy ones become free?
//
// A search asks each set, at most once, whether work uses its covered bytes. If so, it marks the set as wanted.
//
// What becomes of a wanted set? One event stands for all that a stream freed, and each 'close' records it again, further on.
// So a stream that never rests would keep for ever whatever it once got, and others would have to grow instead. Therefore
// such a set gets an older generation (older_generation.hpp). Before the pool grows, the covered bytes of a busy set are set
// aside: they move there together with the event as it is. Nobody records that event again, so the stream reaches it as it
// goes on, and others can have the bytes. If the set is wanted after that, its next close makes way again before it records.
// All of this begins only after a search has found nothing: streams that find enough pay nothing.
//
// order:     one thread at a time, which holds the lock under which bytes move between sets (stream_exchange.hpp).
// cost:      one query of an event for each set that is asked.
// not for:   taking what it finds.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/threads/atomic.hpp>
#include <weir/fwd.hpp>
#include <weir/reuse/stream_ordered/older_generation.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// `Directory`: a stream_directory. All members but 'begin' throw cuda_error and std::bad_alloc; no bytes are lost then.
template <class Directory, class Tuning>
class set_survey {
    using set = typename Directory::set;
    using locked = typename Directory::locked;

public:
    explicit set_survey(Directory& sets) noexcept : sets_(sets) {}

    /// A new search begins.
    void begin() noexcept { ++searches_; }

    enum class answer { free, busy, asked_before };
    /// Asks, at most once in each search, whether work uses the covered bytes of a set, which is locked.
    answer ask(set& donor) {
        if (std::exchange(donor.last_search, searches_) == searches_)
            return answer::asked_before;
        if (donor.reached()) {
            donor.poll(on_host);
            return answer::free;
        }
        donor.wanted.store(true, base::memory_order_relaxed);
        return answer::busy;
    }

    /// Sets bytes of busy sets aside that cover many, compared with their older generation: before that one is used up.
    void set_aside_again(set const* mine) {
        for (set& each : sets_)
            if (&each != mine && each.older && each.hint.bytes() >= Tuning::aside_bytes &&
                each.hint.bytes() >= each.older->hint.bytes()) {
                locked const donor(each);
                if (ask(*donor.get()) == answer::busy)
                    set_aside(*donor.get());
            }
    }

    /// Brings the bytes of all sets but `mine` that no work uses to the host's set. If the pool `grows`, those that work uses
    /// are set aside. Answers how many bytes lie free in the pool.
    std::size_t collect(set const* mine, bool grows) {
        std::size_t free_bytes = 0;
        for (set& each : sets_) {
            if (&each != mine) {
                if (grows && needs_older_generation(each))
                    sets_.add_older(each);
                locked const donor(each);
                answer const now = ask(*donor.get());
                if (now == answer::free)
                    give_to_host(*donor.get());
                else if (now == answer::busy && grows)
                    set_aside(*donor.get());
            }
            free_bytes += each.hint.bytes();
        }
        return free_bytes;
    }

    /// A stream took all that others had given up. This asks those for more: they make way at their next close.
    void want_of_others(set const* mine) noexcept {
        for (set& each : sets_)
            if (&each != mine && each.older)
                each.wanted.store(true, base::memory_order_relaxed);
    }

private:
    bool needs_older_generation(set const& owner) const noexcept {
        return owner.hint.bytes() >= Tuning::aside_bytes && !owner.older && !owner.is_older && !sets_.is_host(owner);
    }

    // Sets the covered bytes of a busy set aside, unless work still uses what was set aside before.
    void set_aside(set& donor) {
        if (!donor.older)
            return;
        {
            locked const before(*donor.older);
            if (before->reached()) {
                before->poll(on_host);
                give_to_host(*before.get());
            }
        }
        detail::set_aside(donor);
    }

    // Moves the covered bytes of a set, which no work uses, to the host's set. From an older generation the deferred blocks
    // move too: they wait for uses on other streams only.
    void give_to_host(set& donor) {
        if (sets_.is_host(donor))
            return;
        auto const host = sets_.host();
        detail::move_covered(donor, *host.get());
        if (donor.is_older && !donor.deferred().empty()) {
            host->deferred().absorb(donor.deferred());
            host->update_hint();
            donor.update_hint();
        }
    }

    Directory& sets_;
    std::uint64_t searches_ = 0; // how many there were so far
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
