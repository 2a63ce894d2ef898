// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do bytes get from one stream's set to another's?
//
// A search walks past every other set (stream_directory.hpp). From one whose event was reached it takes a block, a few of
// a slab, or a stock of bytes for more of them; 'gather' takes all, so that they join. Where the event was not reached, the
// stream is made to wait for it, if the caller wants that; else the set is told that it is wanted.
//
// One event stands for all that a stream freed, and is recorded anew with every close: a stream that never rests would keep for
// itself whatever it ever got, and others would grow for ever in its stead. So before a pool grows, what such a set holds is
// set aside with its event as it is, in a set of its own, which is reached as the stream goes on; wanted again, the set's next
// close does the same, before it records, and brings what no work uses to the host's set. All of that begins only where others
// search in vain: streams that get along pay nothing.
//
// invariant: whoever takes bytes from another set is ordered after that set's event: it was reached, or the taker's stream was
//            made to wait and then recorded its own, so that the order travels on.
// order:     any thread may call any member. Locks: 'moving_', the directory's, then sets' in the order of their list.
// cost:      a search: each set's lock and, where it offers enough, a query of its event.
// not for:   deciding when to wait or to grow: that is ladder.hpp.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/reuse/stream_ordered/older_generation.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// `Make`: makes an empty set. All members throw cuda_error and std::bad_alloc, and then nothing is lost.
template <class Set, class Identity, class Tuning, class Make>
class stream_exchange {
    using directory = stream_directory<Set, Identity>;
    using locked = typename directory::locked;
    using placement = std::decay_t<decltype(std::declval<Set&>().covered())>;

public:
    stream_exchange(directory& sets, Make make) noexcept : sets_(sets), make_(make) {}
    stream_exchange(stream_exchange const&) = delete;
    stream_exchange& operator=(stream_exchange const&) = delete;

    /// A block for `stream`, whose set is `mine`: of another's slabs where much lies there in pieces, and a few more for its
    /// own set; of a stock that it lends; or by itself. With `wait`, the stream waits for the event of bytes that are not free
    /// yet. Never blocks.
    base::range take(Set* mine, std::size_t bytes, std::size_t alignment, std::size_t needed, stream_ref stream, bool wait) {
        runtime::capture_mode_guard const relaxed;
        base::lock_guard<base::mutex> const alone(moving_);
        ++searches_;
        for (Set* each = sets_.first(); each; each = directory::following(*each))
            if (each != mine && lies_ready(*each))
                look_at(*locked(*each).get(), true);
        for (int way = 0; way != 3; ++way) {
            bool const stock = way == 1;
            for (Set* each = sets_.first(); each; each = directory::following(*each)) {
                if (each == mine || !each->hint.may_hold(needed) || (way == 0 && !each->hint.is_splintered()))
                    continue;
                base::range found;
                batch more;
                bool waited = false;
                {
                    locked const donor(*each);
                    look_at(*donor.get(), false);
                    waited = !donor->safe().was_reached();
                    if (waited && (!wait || (stock && !Identity::asks)))
                        continue;
                    found = stock ? donor->covered().lend(bytes, alignment) : donor->covered().take(bytes, alignment);
                    if (found && waited)
                        wait_for(*each, found, stock, stream);
                    if (found && !waited && way == 0)
                        more.fill(donor->covered(), bytes, alignment, needed);
                    donor->update_hint();
                    if (found && found.bytes == needed)
                        donor->used().took(found);
                }
                if (!found)
                    continue;
                if (more.count != 0)
                    keep(more, stream, *each);
                return found.bytes == needed ? found : keep(found, bytes, alignment, stream, waited, *each);
            }
        }
        return base::range{};
    }

    /// Whether a large block may fit better among other sets' bytes than among those of `mine`, which is locked.
    bool gathers_for(std::size_t bytes, Set const* mine) const noexcept {
        for (Set const* each = bytes < Tuning::gather_bytes ? nullptr : sets_.first(); each; each = directory::following(*each))
            if (each != mine && each != mine->aside && each->hint.bytes() >= Tuning::gather_bytes)
                return true;
        return false;
    }

    /// Brings all bytes that no work uses together, where they join, and to `stream`, unless its own are in use. With `grows`,
    /// when the pool is about to: there they come anyway, and what others still use is set aside, for the next time. What is
    /// aside of the stream itself comes back to join whenever a quarter more lies free than when it last did; more often,
    /// others would wait for it in vain. Never blocks.
    void gather(stream_ref stream, bool grows) {
        runtime::capture_mode_guard const relaxed;
        base::lock_guard<base::mutex> const alone(moving_);
        ++searches_;
        Set* const mine = sets_.enter(stream, true, make_).get();
        std::size_t offered_bytes = 0;
        for (Set* each = sets_.first(); each; each = directory::following(*each)) {
            if (grows && each != mine && needs_aside(*each))
                sets_.add_aside(*each, make_());
            if (each != mine)
                look_at(*locked(*each).get(), grows, true);
            offered_bytes += each->hint.bytes();
        }
        if (stream.is_host())
            return;
        auto const own = sets_.enter(stream, true, make_);
        own->poll(on_host);
        if (offered_bytes < own->offered_at_recall / 2) // given back, or used for long
            own->offered_at_recall = 0;
        if (grows && own->aside && offered_bytes >= own->offered_at_recall + own->offered_at_recall / 4) {
            own->offered_at_recall = offered_bytes;
            detail::recall(*own.get());
        }
        if (grows || own->reached()) {
            detail::settle_into(*own.get(), *sets_.settled().get());
            want_of_others(own.get());
        }
    }

    /// Brings back what is aside of `stream`, before it waits for others; makes it wait for their uses of its own bytes.
    void recall(stream_ref stream) {
        base::lock_guard<base::mutex> const alone(moving_);
        auto const own = sets_.enter(stream, true, make_);
        detail::recall(*own.get());
        own->wanted.store(false, base::memory_order_relaxed); // or its next close sets it aside again
        own->poll(stream, true);
    }

    /// As stream_directory'.
    bool wait() { return sets_.wait(moving_); }
    void settle() { sets_.settle(moving_); }

private:
    // Blocks of one size, in no use, on their way from one set's slabs to another's: who wants one wants the next as well, and
    // each search costs an event and a query.
    struct batch {
        static constexpr unsigned most_blocks = 8; // with the one that was wanted
        static constexpr std::size_t most_bytes = 128 * KiB;

        void fill(placement& from, std::size_t bytes, std::size_t alignment, std::size_t needed) noexcept {
            if constexpr (contract::holds<contract::splinters, placement>) {
                if (!placement::is_small(bytes, alignment))
                    return;
                try {
                    while (count + 1 < most_blocks && (count + 2) * needed <= most_bytes) {
                        blocks[count] = from.take_at_hand(bytes, alignment);
                        if (!blocks[count])
                            return;
                        ++count;
                    }
                } catch (...) { // no host memory: so many do
                }
            }
        }

        void put_into(Set& to) const noexcept {
            for (unsigned i = 0; i < count; ++i)
                to.put_back(blocks[i], false);
        }

        base::range blocks[most_blocks - 1];
        unsigned count = 0;
    };

    bool needs_aside(Set const& owner) const noexcept {
        return owner.hint.bytes() >= Tuning::aside_bytes && !owner.aside && !owner.is_aside && !sets_.is_settled(owner);
    }

    // Whether what is aside of a set may be used up sooner than more of it can be set aside.
    static bool lies_ready(Set const& owner) noexcept {
        return owner.aside && owner.hint.bytes() >= Tuning::aside_bytes &&
               owner.hint.bytes() >= owner.aside->hint.bytes();
    }

    // Asks, once a search, whether the bytes of another stream's set, which is locked, are in use. If so, they are wanted, and
    // with `sets_aside` set aside, where what was there before is not in use; if not, with `settles`, they join those of
    // others.
    void look_at(Set& donor, bool sets_aside, bool settles = false) {
        if (std::exchange(donor.looked_at, searches_) == searches_)
            return;
        if (donor.reached()) {
            donor.poll(on_host);
            if (settles)
                settle(donor);
            return;
        }
        donor.wanted.store(true, base::memory_order_relaxed);
        if (sets_aside && donor.aside) {
            {
                locked const before(*donor.aside);
                if (before->reached()) {
                    before->poll(on_host);
                    settle(*before.get());
                }
            }
            detail::set_aside(donor);
        }
    }

    // The bytes of a set, which no work uses, become the host's; of one aside also the blocks that wait for other streams only.
    void settle(Set& donor) {
        if (sets_.is_settled(donor))
            return;
        auto const host = sets_.settled();
        detail::settle_into(*host.get(), donor);
        if (donor.is_aside && !donor.deferred().empty()) {
            host->deferred().absorb(donor.deferred());
            host->update_hint();
            donor.update_hint();
        }
    }

    // A stream took all that others had brought: those make way with their next close, so that it finds more.
    void want_of_others(Set const* mine) noexcept {
        for (Set* each = sets_.first(); each; each = directory::following(*each))
            if (each != mine && each->aside)
                each->wanted.store(true, base::memory_order_relaxed);
    }

    // Makes the stream wait for the donor's event; where that fails, the donor gets its bytes back.
    static void wait_for(Set& donor, base::range found, bool stock, stream_ref stream) {
        try {
            donor.safe().passed()->make_wait(stream);
        } catch (...) {
            if (!donor.put_back(found, stock)) // a placement of our own always can: see 'lend'
                donor.lose(found);
            throw;
        }
    }

    // Adds a stock to the stream's own set and takes a block of it. Where the stream had to wait for the stock,
    // it records its own event after that: the donor's event travels with the bytes. Where that fails, they return.
    base::range keep(base::range stock, std::size_t bytes, std::size_t alignment, stream_ref stream, bool waited, Set& donor) {
        bool kept = false;
        try {
            auto const own = sets_.enter(stream, true, make_);
            if (!waited || own->close(stream)) {
                own->receive(stock, waited);
                kept = true;
                base::range const block = own->covered().take(bytes, alignment);
                own->update_hint();
                if (block)
                    own->used().took(block);
                return block;
            }
        } catch (...) {
            if (!kept)
                put_back(stock, donor);
            throw;
        }
        put_back(stock, donor);
        return base::range{};
    }

    // Adds blocks to the stream's own set.
    void keep(batch const& more, stream_ref stream, Set& donor) noexcept {
        try {
            more.put_into(*sets_.enter(stream, true, make_).get());
        } catch (...) { // the stream is not what it was: they return
            more.put_into(*locked(donor).get());
        }
    }

    // The donor may be another stream's set by now, but then the last use of what it lent is over. Where the host has no
    // memory for it there, only 'settle' frees the stock.
    void put_back(base::range stock, Set& donor) noexcept {
        bool const done = locked(donor)->put_back(stock, true);
        if (!done)
            sets_.settled()->strand(stock, {}, true);
    }

    directory& sets_;
    Make make_;
    // Held while bytes go from set to set, but for a close, which moves them further down the list: whoever finds none, looking
    // at all sets in that order, has seen all but what was handed out and freed meanwhile.
    base::mutex moving_;
    std::uint64_t searches_ = 0; // so far
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
