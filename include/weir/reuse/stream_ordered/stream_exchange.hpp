// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do bytes get from one stream's set to another's?
//
// A search visits every other stream's set in turn (set_list.hpp). If the set's event was reached, no work uses the covered
// bytes there, and the search may take some of them, in one of three ways. Where many blocks lie free in slabs, it takes one
// and a few more of the same size (block_batch.hpp). Or it takes a stock: a range that the taker adds to its own set, for this
// block and later ones. Or it takes just the block. 'gather' takes all such bytes of all sets, so that neighbours join. If the
// event was not reached, the search makes the stream wait for it, if the caller asked for that. What is asked of the sets,
// and what becomes of those that are busy, is in set_survey.hpp.
//
// invariant: whoever takes bytes from another stream's set is ordered after that set's event. Either it was reached, or the
//            taker's stream was made to wait for it and then recorded its own, so that the order travels on with the bytes.
// order:     any thread may call any member. Locks are taken in this order: 'moving_', the directory's, then those of sets in
//            the order of the directory's list.
// cost:      a search: the lock of each set and, if the set offers enough, one query of its event.
// not for:   deciding when to wait or to grow: that is pool/pool/ladder.hpp.

#include <cstddef>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/reuse/stream_ordered/stream_exchange/block_batch.hpp>
#include <weir/reuse/stream_ordered/older_generation.hpp>
#include <weir/reuse/stream_ordered/stream_exchange/set_survey.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// The block that a search is for.
template <class Caller>
struct wanted_block {
    Caller who;
    std::size_t bytes;
    std::size_t alignment;
    std::size_t needed_bytes; ///< the block's size: `bytes`, rounded by the placement
    bool may_wait; ///< bytes that work still uses will do as well: then the stream is made to wait for their event
    bool* waits;   ///< set if the stream was made to wait for what was found
};

/// All members throw cuda_error and std::bad_alloc; no bytes are lost then.
template <class Placement, class Identity, class Tuning>
class stream_exchange {
    using directory = stream_directory<Placement, Identity, Tuning>;
    using set = typename directory::set;
    using locked = typename directory::locked;
    using caller = typename directory::caller;
    using wanted_block = detail::wanted_block<caller>;

public:
    explicit stream_exchange(directory& sets) noexcept : sets_(sets) {}
    stream_exchange(stream_exchange const&) = delete;
    stream_exchange& operator=(stream_exchange const&) = delete;

    /// Finds a block for the caller's stream, whose set is `mine`, in the other sets, and takes it in one of the three ways
    /// that the head names, in that order. An empty range if nothing was found. The host waits at most for room in a full
    /// queue.
    base::range take(set* mine, wanted_block const& want) {
        runtime::capture_mode_scope const relaxed;
        base::lock_guard<base::mutex> const alone(moving_);
        survey_.begin();
        survey_.set_aside_again(mine);
        base::range block = take_of_others(mine, want, &stream_exchange::take_with_more);
        if (!block)
            block = take_of_others(mine, want, &stream_exchange::take_of_stock);
        return block ? block : take_of_others(mine, want, &stream_exchange::take_alone);
    }

    /// Whether the caller should 'gather' before it takes a block of `bytes` bytes: the block is large, and another set
    /// offers enough that joining may help. `mine` is locked.
    bool gathers_for(std::size_t bytes, set const& mine) const noexcept {
        bool const is_short = short_for_.load(base::memory_order_relaxed) != 0;
        std::size_t const least = (is_short ? short_gather_bytes_ : gather_bytes_).load(base::memory_order_relaxed);
        if (bytes >= least)
            for (set const& each : sets_)
                if (&each != &mine && &each != mine.older && each.hint.bytes() >= least)
                    return true;
        return false;
    }

    /// The pool will hold at most `bytes` bytes from now on. The less that is, the smaller the blocks for which it gathers.
    /// `share`: of that, from which on it gathers.
    void expect_at_most(std::size_t bytes, std::size_t share) noexcept {
        std::size_t const least = share < Tuning::gather_bytes ? share : Tuning::gather_bytes;
        gather_bytes_.store(least, base::memory_order_relaxed);
        short_gather_bytes_.store(bytes / small_share < least ? bytes / small_share : least, base::memory_order_relaxed);
    }

    /// Memory is short: for a while it gathers for smaller blocks too, since bytes join only where they lie together.
    void note_shortage() noexcept { short_for_.store(gathers_of_a_shortage, base::memory_order_relaxed); }

    /// Brings all bytes that no work uses together in the host's set, where they join. From there they go to the set of the
    /// caller's stream, unless work uses the bytes that this set covers; with `grows` they go there in any case. `grows`: the
    /// pool is about to grow. Then bytes that other streams still use are set aside, for the next time, and the stream's own
    /// older generation may come back to join. Never blocks.
    void gather(caller who, bool grows) {
        runtime::capture_mode_scope const relaxed;
        base::lock_guard<base::mutex> const alone(moving_);
        survey_.begin();
        if (unsigned const left = short_for_.load(base::memory_order_relaxed))
            short_for_.store(left - 1, base::memory_order_relaxed);
        set* const mine = sets_.enter(who).get(); // it is not locked any more
        std::size_t const free_bytes = survey_.collect(mine, grows);
        if (who.is_host())
            return;
        auto const own = sets_.enter(who);
        own->poll(on_host);
        recall_for_growth(*own.get(), free_bytes, grows);
        if (grows || own->reached()) {
            detail::move_covered(*sets_.host().get(), *own.get());
            survey_.want_of_others(own.get());
        }
    }

    /// Brings the older generation of the stream back into its set, before the stream waits for others. Where other streams use
    /// blocks of its own, the stream is made to wait for these uses.
    void recall(caller who) {
        base::lock_guard<base::mutex> const alone(moving_);
        auto const own = sets_.enter(who);
        detail::recall(*own.get());
        own->wanted.store(false, base::memory_order_relaxed); // else its next close would set the bytes aside again
        own->poll(who.stream(), true);
    }

    /// As the members of stream_directory of these names.
    bool wait() { return sets_.wait(moving_); }
    void settle() { sets_.settle(moving_); }

private:
    // Where the pool grows, brings the older generation of a set back, but only if a quarter more bytes lie free in the pool
    // than when it last came back: more often, others would wait for it in vain.
    static void recall_for_growth(set& own, std::size_t free_bytes, bool grows) {
        if (free_bytes < own.free_bytes_at_recall / 2) // much was given back upstream, or is in use for long
            own.free_bytes_at_recall = 0;
        if (!grows || !own.older || free_bytes < own.free_bytes_at_recall + own.free_bytes_at_recall / 4)
            return;
        own.free_bytes_at_recall = free_bytes;
        detail::recall(own);
    }

    // Tries one of the three ways on each of the other sets that may hold the block.
    template <class Way>
    base::range take_of_others(set* mine, wanted_block const& want, Way const& way) {
        for (set& each : sets_)
            if (&each != mine && each.hint.may_hold(want.needed_bytes))
                if (base::range const block = (this->*way)(each, want))
                    return block;
        return base::range{};
    }

    // Takes the block from another stream's slabs, and a few more of the same size for the stream's own set.
    base::range take_with_more(set& donor, wanted_block const& want) {
        if (!donor.hint.is_splintered())
            return base::range{};
        block_batch more;
        base::range const block = take_one(donor, want, &more);
        if (!more.empty())
            keep(more, want.who, donor);
        return block;
    }

    // Takes just the block.
    base::range take_alone(set& donor, wanted_block const& want) { return take_one(donor, want, nullptr); }

    base::range take_one(set& each, wanted_block const& want, block_batch* more) {
        locked const donor(each);
        if (!may_take(*donor.get(), want.may_wait))
            return base::range{};
        bool const waits = !donor->safe().was_reached();
        base::range const block = donor->covered().take(want.bytes, want.alignment);
        if (block && waits)
            wait_for(*donor.get(), block, false, want);
        else if (block && more)
            more->fill(donor->covered(), want.bytes, want.alignment, want.needed_bytes);
        donor->update_hint();
        if (block)
            donor->used().took(block);
        return block;
    }

    // Takes a stock, keeps it in the stream's own set, and takes the block from it. A stream that may end at any time gets no
    // stock that is in use (identity.hpp).
    base::range take_of_stock(set& each, wanted_block const& want) {
        base::range stock;
        bool waits = false;
        {
            locked const donor(each);
            if (!may_take(*donor.get(), want.may_wait && Identity::asks))
                return stock;
            waits = !donor->safe().was_reached();
            stock = donor->covered().lend(want.bytes, want.alignment);
            if (stock && waits)
                wait_for(*donor.get(), stock, true, want);
            donor->update_hint();
            if (stock && stock.bytes == want.needed_bytes)
                donor->used().took(stock);
        }
        return !stock || stock.bytes == want.needed_bytes ? stock : keep(stock, want, waits, each);
    }

    // Whether the search may take from a set, which is locked: no work uses its covered bytes, or the stream `may_wait`.
    bool may_take(set& donor, bool may_wait) {
        survey_.ask(donor);
        return may_wait || donor.safe().was_reached();
    }

    // Makes the stream wait for the donor's event; where that fails, the donor gets its bytes back.
    static void wait_for(set& donor, base::range found, bool stock, wanted_block const& want) {
        try {
            donor.safe().passed()->make_wait(want.who.stream());
            *want.waits = true;
        } catch (...) {
            if (!donor.put_back(found, stock)) // weir's placements can always take back what they lent: see 'lend'
                donor.lose(found);
            throw;
        }
    }

    // Adds a stock to the stream's own set and takes a block from it. If the stream `waits` for the stock, it records its own
    // event after that wait, so the donor's event travels with the bytes. If that fails, the stock returns to the donor.
    base::range keep(base::range stock, wanted_block const& want, bool waits, set& donor) {
        bool kept = false;
        try {
            auto const own = sets_.enter(want.who);
            if (!waits || own->close(want.who.stream())) {
                own->receive(stock, waits);
                kept = true;
                base::range const block = own->covered().take(want.bytes, want.alignment);
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
    void keep(block_batch const& more, caller who, set& donor) noexcept {
        try {
            more.put_into(*sets_.enter(who).get());
        } catch (...) { // the stream has no set that can be used now: the blocks return
            more.put_into(*locked(donor).get());
        }
    }

    // The donor may have become another stream's set meanwhile; that happens only to a set at rest, so the last use of what
    // it lent is over then. If the host has no memory to keep the stock there, the stock is stranded: only 'settle' frees it.
    void put_back(base::range stock, set& donor) noexcept {
        bool const done = locked(donor)->put_back(stock, true);
        if (!done)
            sets_.host()->strand(stock, {}, true);
    }

    static constexpr std::size_t small_share = 64 * KiB; // where memory is short it gathers from this share of the limit on
    static constexpr unsigned gathers_of_a_shortage = 4096;

    directory& sets_;
    // Held while bytes go from one set to another. Only a close moves bytes without it, and only to sets further down the
    // list. So whoever looks at all sets in the order of the list and finds nothing has missed only what was handed out and
    // freed meanwhile.
    base::mutex moving_;
    set_survey<directory, Tuning> survey_{sets_}; // under 'moving_'
    // It gathers for blocks of so many bytes, and where memory is short of so many. Constant once there are sets.
    base::atomic<std::size_t> gather_bytes_{Tuning::gather_bytes};
    base::atomic<std::size_t> short_gather_bytes_{Tuning::gather_bytes};
    base::atomic<unsigned> short_for_{0}; // so many gathers from now on
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
