// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do bytes get from one stream's set to another's?
//
// A search visits every other stream's set in turn (stream_directory.hpp). If the set's event was reached, no work uses the
// covered bytes there, and the search may take some of them, in one of three ways. Where many blocks lie free in slabs, it
// takes one and a few more of the same size. (A slab serves blocks of one size; the free bytes in it are splinters.) Or it
// takes a stock: a range that the taker adds to its own set, for this block and later ones. Or it takes just the block.
// 'gather' takes all such bytes of all sets, so that neighbours join. If the event was not reached, the search makes the
// stream wait for it, if the caller asked for that; else it marks the set as wanted.
//
// What becomes of a wanted set? One event stands for all that a stream freed, and each 'close' records it again, further on.
// So a stream that never rests would keep for ever whatever it once got, and others would have to grow instead. Therefore
// such a set gets an older generation, a second set in its member 'aside' (older_generation.hpp). Before the pool grows, the
// covered bytes of a busy set move there together with the event as it is. Nobody records that event again, so the stream
// reaches it as it goes on, and others can have the bytes. If the set is wanted after that, its next close moves bytes aside
// again before it records; bytes that no work uses it moves to the host's set. All of this begins only after a search has
// found nothing: streams that find enough pay nothing.
//
// invariant: whoever takes bytes from another stream's set is ordered after that set's event. Either it was reached, or the
//            taker's stream was made to wait for it and then recorded its own, so that the order travels on with the bytes.
// order:     any thread may call any member. Locks are taken in this order: 'moving_', the directory's, then those of sets in
//            the order of the directory's list.
// cost:      a search: the lock of each set and, if the set offers enough, one query of its event.
// not for:   deciding when to wait or to grow: that is pool/pool/ladder.hpp.

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

/// `Make`: a function object that makes an empty set. All members throw cuda_error and std::bad_alloc; no bytes are lost
/// then.
template <class Set, class Identity, class Tuning, class Make>
class stream_exchange {
    using directory = stream_directory<Set, Identity>;
    using locked = typename directory::locked;
    using placement = std::decay_t<decltype(std::declval<Set&>().covered())>;

public:
    stream_exchange(directory& sets, Make make) noexcept : sets_(sets), make_(make) {}
    stream_exchange(stream_exchange const&) = delete;
    stream_exchange& operator=(stream_exchange const&) = delete;

    /// Finds a block for `stream`, whose set is `mine`, in the other sets, and takes it in one of the three ways that the
    /// head names, in that order. `needed`: the block's size, rounded. With `wait`, bytes that work still uses will do as
    /// well, and the stream is made to wait for their event. An empty range if nothing was found. Never blocks the host.
    base::range take(Set* mine, std::size_t bytes, std::size_t alignment, std::size_t needed, stream_ref stream, bool wait) {
        runtime::capture_mode_scope const relaxed;
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

    /// Whether the caller should 'gather' before it takes a block of `bytes` bytes: the block is large, and another set
    /// offers enough that joining may help. `mine` is locked.
    bool gathers_for(std::size_t bytes, Set const* mine) const noexcept {
        for (Set const* each = bytes < Tuning::gather_bytes ? nullptr : sets_.first(); each; each = directory::following(*each))
            if (each != mine && each != mine->aside && each->hint.bytes() >= Tuning::gather_bytes)
                return true;
        return false;
    }

    /// Brings all bytes that no work uses together in the host's set, where they join. From there they go to the set of
    /// `stream`, unless work uses the bytes that this set covers; with `grows` they go there in any case. `grows`: the pool
    /// is about to grow. Then bytes that other streams still use are set aside, for the next time. Also, the older generation
    /// of `stream` itself comes back to join, but only if a quarter more bytes lie free in the pool than when it last came
    /// back: more often, others would wait for it in vain. Never blocks.
    void gather(stream_ref stream, bool grows) {
        runtime::capture_mode_scope const relaxed;
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
        if (offered_bytes < own->offered_at_recall / 2) // much was given back upstream, or is in use for long
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

    /// Brings the older generation of `stream` back into its set, before the stream waits for others. Where other streams use
    /// blocks of its own, the stream is made to wait for these uses.
    void recall(stream_ref stream) {
        base::lock_guard<base::mutex> const alone(moving_);
        auto const own = sets_.enter(stream, true, make_);
        detail::recall(*own.get());
        own->wanted.store(false, base::memory_order_relaxed); // else its next close would set the bytes aside again
        own->poll(stream, true);
    }

    /// As the members of stream_directory of these names.
    bool wait() { return sets_.wait(moving_); }
    void settle() { sets_.settle(moving_); }

private:
    // Blocks of one size that no work uses, on their way from one set's slabs to another's. Several move at once because
    // whoever wants one soon wants the next, and each search costs an event and a query.
    struct batch {
        static constexpr unsigned most_blocks = 8; // the wanted one included
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
                } catch (...) { // no host memory: the blocks found so far are enough
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

    // Whether a set covers so much, compared with its older generation, that it should set bytes aside again before that one
    // is used up.
    static bool lies_ready(Set const& owner) noexcept {
        return owner.aside && owner.hint.bytes() >= Tuning::aside_bytes &&
               owner.hint.bytes() >= owner.aside->hint.bytes();
    }

    // Asks whether work uses the covered bytes of another stream's set, which is locked; at most once in each search. If it
    // does, the set is marked as wanted; with `sets_aside` its bytes are set aside as well, unless work still uses what was
    // set aside before. If it does not, and with `settles`, the bytes move to the host's set, where they join.
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

    // Moves the covered bytes of a set, which no work uses, to the host's set. From an older generation the deferred blocks
    // move too: they wait for uses on other streams only.
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

    // A stream took all that others had given up. This asks those for more: they make way at their next close.
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
            if (!donor.put_back(found, stock)) // weir's placements can always take back what they lent: see 'lend'
                donor.lose(found);
            throw;
        }
    }

    // Adds a stock to the stream's own set and takes a block from it. If the stream had to wait for the stock, it records its
    // own event after that wait, so the donor's event travels with the bytes. If that fails, the stock returns to the donor.
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
        } catch (...) { // the handle names another stream, or the like: the blocks return
            more.put_into(*locked(donor).get());
        }
    }

    // The donor may have become another stream's set meanwhile; that happens only to a set at rest, so the last use of what
    // it lent is over then. If the host has no memory to keep the stock there, the stock is stranded: only 'settle' frees it.
    void put_back(base::range stock, Set& donor) noexcept {
        bool const done = locked(donor)->put_back(stock, true);
        if (!done)
            sets_.settled()->strand(stock, {}, true);
    }

    directory& sets_;
    Make make_;
    // Held while bytes go from one set to another. Only a close moves bytes without it, and only to sets further down the
    // list. So whoever looks at all sets in the order of the list and finds nothing has missed only what was handed out and
    // freed meanwhile.
    base::mutex moving_;
    std::uint64_t searches_ = 0; // how many there were so far
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
