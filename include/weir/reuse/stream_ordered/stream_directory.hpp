// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which set belongs to the stream that a caller names?
//
// The directory keeps a set of free bytes for each stream (stream_set.hpp). It finds a set by the stream's key, without a
// lock, and makes one when it sees a stream for the first time. It also lists all sets, for those who look for bytes
// elsewhere.
//
// Streams end, and CUDA gives their handles to new ones. The directory notices this by the stream's id (caller.hpp). Then the
// old set is retired: nobody calls for it any more, and the new stream gets a set of its own. No event tells of the old
// stream's last frees, its open bytes. They are stranded: they leave the set for a list that only 'settle' empties. The other
// bytes stay in the retired set, where rungs 2 and 4 of the ladder (reuse/stream_ordered.hpp) find them.
//
// Nobody says when a thread ends, so its own default stream's open bytes are stranded once 16 other streams came here since
// it did (thread_line.hpp). So what ended threads leave unsettled, also while the device is behind, is at most 16 times
// Tuning::recent_bytes and Tuning::stranded_bytes; or, with more than 16 threads that stay, as many times as those are.
//
// A new stream may also take over another stream's set (set_list.hpp). If that was a default stream's and this stream does
// come again, it gets a new set and keeps it. So there are at most as many sets as streams that come here before one of them
// comes again (up to 1,024).
//
// invariant: a set with key k is the only one with key k. Sets live as long as the directory.
// order:     locks are taken in this order: the directory's mutex, then a set's lock; of two sets, first the one that is
//            earlier in the list.
// cost:      a known stream: one look-up and one spin lock. A new one: a mutex and a few CUDA calls.
// not for:   deciding who may have which bytes.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/order/stranded_blocks.hpp>
#include <weir/reuse/stream_ordered/caller.hpp>
#include <weir/reuse/stream_ordered/deferred_blocks.hpp>
#include <weir/reuse/stream_ordered/last_numbers.hpp>
#include <weir/reuse/stream_ordered/lookup_table.hpp>
#include <weir/reuse/stream_ordered/stream_directory/set_list.hpp>
#include <weir/reuse/stream_ordered/stream_directory/thread_line.hpp>
#include <weir/reuse/stream_ordered/set_waits.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Any thread may call any member. `Placement`, `Identity`, `Tuning`: reuse::stream_ordered's.
template <class Placement, class Identity, class Tuning>
class stream_directory {
public:
    using set = stream_set<Placement, Identity, Tuning>;
    using locked = weir::base::locked<set>;
    using caller = reuse::detail::caller<Identity>;

    base::atomic<std::size_t> recent_bytes{Tuning::recent_bytes}; ///< of a stream that comes now: see Tuning

    /// `device`: the device of every stream; any_device: they may be of any.
    explicit stream_directory(int device) : device_(device), sets_(make()) {}
    stream_directory(stream_directory const&) = delete;
    stream_directory& operator=(stream_directory const&) = delete;
    /// Blocks until other streams have passed their uses of freed blocks. Giving memory back to a device waits for that
    /// device only, and these streams may belong to another one.
    ~stream_directory() {
        try {
            base::growing_array<shared_uses> uses;
            for (set& each : sets_)
                each.deferred().list_uses(uses);
            wait_for(uses);
        } catch (...) { // the device has failed: nothing runs any more
        }
    }

    /// All sets, for a range-based 'for'. The newest comes first and the host's last. Whoever looks at all of them in this
    /// order misses no byte that is set aside meanwhile.
    auto begin() const noexcept { return sets_.begin(); }
    auto end() const noexcept { return sets_.end(); }

    /// The host's set, locked. No work uses the bytes in it.
    locked host() noexcept { return locked(sets_.host()); }
    bool is_host(set const& which) const noexcept { return &which == &sets_.host(); }

    /// Takes back a block of whose last use nothing is known, and counts it as freed. It is stranded: only 'settle' makes it
    /// free.
    void strand(base::range block) noexcept {
        keep(block, [&] { return stranded_.add(block, any_device), true; });
    }
    /// The same for a block that the graph of the capture `by` may use at each launch. It is lost until nothing is left of that
    /// graph, and stranded then. If `by` is none, or CUDA cannot watch the graph, it is lost for ever.
    void lose(base::range block, runtime::capture const& by) noexcept {
        keep(block, [&] { return stranded_.add_for_graph(block, by); });
    }

    /// The set of the caller's stream, locked; it is made if the stream is new. Throws usage_error for another device's stream,
    /// cuda_error, std::bad_alloc.
    [[gnu::always_inline]] locked enter(caller who) {
        if (who.is_special())
            return enter_special(who);
        set* const found = table_.find(who.key());
        return found && lock_if(*found, who) ? locked(*found, locked::already_held) : enter_anew(found, who);
    }

    /// The device of `stream`, which must not be captured. Throws usage_error if the directory is for another device,
    /// cuda_error.
    int require_device(stream_ref stream) const {
        int const device = runtime::device_of(stream);
        if (device_ != any_device && device != device_)
            throw usage_error("weir: the stream belongs to device " + base::number_text(static_cast<std::size_t>(device)) +
                              " and the pool to device " + base::number_text(static_cast<std::size_t>(device_)) +
                              "; use a stream of the pool's device, or a pool of the stream's");
        return device;
    }

    /// Blocks until every event that the sets know of has been reached. The answer is whether any had not been. `moving`: see
    /// set_waits.hpp. Throws cuda_error, std::bad_alloc.
    template <class Lock>
    bool wait(Lock& moving) {
        return wait_for_events(*this, moving);
    }

    /// Blocks until no work uses the bytes that are in the sets or stranded. Then anyone may have them, except those of a set
    /// to which more came meanwhile. Throws cuda_error, std::bad_alloc.
    template <class Lock>
    void settle(Lock& moving) {
        settle_sets(*this, stranded_, moving);
    }

    /// The stranded bytes; each block counts as 16 KiB at least.
    std::size_t stranded_bytes() noexcept { return static_cast<void>(look_at_stranded()), stranded_.weight(); }

    /// Bytes of which no event tells when others may have them; 'settle' makes them available.
    std::size_t unsettled_bytes() noexcept { return used().unsettled_bytes; }

    /// Calls visit(placement) for the covered bytes of each set whose event was reached and which may hold `least_bytes`,
    /// until a call answers true. Never blocks. Throws cuda_error, std::bad_alloc, and what the visitor throws.
    template <class Visit>
    void visit_unused(Visit const& visit, std::size_t least_bytes) {
        runtime::capture_mode_scope const relaxed;
        for (set& each : sets_) {
            if (!each.hint.may_hold(least_bytes))
                continue;
            locked const donor(each);
            static_cast<void>(donor->poll(on_host));
            if (!donor->reached())
                continue;
            bool const done = visit(donor->covered());
            donor->update_hint();
            if (done)
                return;
        }
    }

    /// Bytes and blocks in use, lost and unsettled bytes, and the largest free range of any set.
    base::usage used() noexcept {
        base::usage sum;
        for (set& each : sets_) {
            locked const own(each);
            sum.bytes += own->used().bytes();
            sum.blocks += own->used().blocks();
            sum.lost_bytes += own->used().lost_bytes;
            sum.unsettled_bytes += own->open_bytes();
            if (sum.largest_free_bytes < own->largest_bytes())
                sum.largest_free_bytes = own->largest_bytes();
        }
        sum.unsettled_bytes += look_at_stranded();
        sum.lost_bytes += stranded_.graph_bytes();
        // This is no snapshot. What other threads move between sets meanwhile may be missing, so the sum may be below zero.
        sum.not_below_zero();
        return sum;
    }

    /// Gives `owner`, which is one of these sets and has no older generation, an empty one. Throws std::bad_alloc.
    void add_older(set& owner) {
        set* const empty = make();
        base::lock_guard<base::mutex> const lock(mutex_);
        locked const own(owner);
        own->older = empty;
        own->host = &sets_.host();
        empty->is_older = true;
        sets_.add_behind(owner, empty);
    }

private:
    set* make() const {
        if constexpr (contract::holds<contract::has_sibling, Placement>)
            return new set(root_.sibling());
        else
            return new set(Placement());
    }

    // Takes back a block that `add` notes; where it fails twice, the block is lost.
    template <class Add>
    void keep(base::range block, Add const& add) noexcept {
        locked const free = host();
        free->used().gave(block);
        if (!base::try_twice(add))
            free->lose(block);
    }

    // Strands what graphs left that are gone, and returns the stranded bytes.
    std::size_t look_at_stranded() noexcept {
        locked const free = host();
        stranded_.look_at_graphs();
        return stranded_.bytes();
    }

    // The set is locked, and its stream's handle names another stream by now, so nobody calls for it any more. The open bytes
    // leave the set. What remains is at rest once the event was reached, and the set can serve another stream then.
    void retire(set& gone) noexcept {
        gone.key.store(0, base::memory_order_relaxed);
        strand_open(gone);
    }
    void strand_open(set& gone) noexcept {
        locked const free = host();
        try {
            gone.leave_open([&](base::range block) { stranded_.add(block, gone.device()); });
        } catch (...) { // no host memory: they stay, and only 'settle' frees them here too
        }
    }

    // Locks the set if it is the stream's. False: it is not, and is not locked.
    [[gnu::always_inline]] static bool lock_if(set& found, caller who) noexcept {
        found.lock.lock();
        if (found.key.load(base::memory_order_relaxed) == who.key() && !who.differs_from(found.id()))
            return true;
        found.lock.unlock();
        return false;
    }

    // The part of 'enter' for the host and for default streams. Not inlined, like 'enter_anew'.
    [[gnu::noinline]] locked enter_special(caller who) {
        if (who.is_host())
            return host();
        set* const found = table_.find(who.key());
        // If it is another stream's by now, that stream seems to have come a little later than it did, which is harmless.
        if (found)
            found->came_at.store(newcomers_.load(base::memory_order_relaxed), base::memory_order_relaxed);
        if (found && lock_if(*found, who)) {
            if (!found->was_left)
                return locked(*found, locked::already_held);
            found->lock.unlock();
        }
        return enter_anew(found, who);
    }

    // The part of 'enter' for a set at hand that is not the stream's, or for none (null). Such a set has become another
    // stream's, or it belongs to an earlier stream of the same handle, and is retired here. Not inlined, so that the usual
    // path saves no registers.
    [[gnu::noinline]] locked enter_anew(set* found, caller who) {
        who = who.in_full();
        do {
            if (found)
                if (locked const other(*found);
                    other->key.load(base::memory_order_relaxed) == who.key() && who.differs_from(other->id()))
                    retire(*other.get());
            found = &find_or_make(who);
        } while (!lock_if(*found, who));
        return locked(*found, locked::already_held);
    }

    set& find_or_make(caller who) {
        base::lock_guard<base::mutex> const lock(mutex_);
        set* const present = table_.find(who.key());
        if (present && present->key.load(base::memory_order_relaxed) == who.key()) {
            welcome(*present);
            return *present; // another thread was here first, or its own has come again
        }
        int const device = require_device(who.stream());
        std::uint64_t const now = newcomers_.fetch_add(1, base::memory_order_relaxed) + 1;
        threads_.look(now, [this](set& left) { return strand_left(left); });
        if (sets_.is_long() && !displaced_.take_out(who.key()))
            if (set* const taken = take_over(who, device, now)) {
                welcome(*taken);
                return *taken;
            }
        table_.reserve_one();
        set* const fresh = make();
        fresh->came_at.store(now, base::memory_order_relaxed);
        fresh->name(who, device, recent_bytes.load(base::memory_order_relaxed));
        table_.assign(who.key(), fresh);
        sets_.add(fresh);
        welcome(*fresh);
        return *fresh;
    }

    // The set's stream has come: for the first time, or after its open bytes were stranded.
    void welcome(set& own) noexcept {
        {
            locked const lock(own);
            own.was_left = false;
        }
        threads_.join(own);
    }
    // Whether the open bytes of a set are stranded whose thread seems to have ended. If the set is locked, it has not.
    bool strand_left(set& left) noexcept {
        if (!left.lock.try_lock())
            return false;
        locked const own(left, locked::already_held);
        strand_open(left);
        left.was_left = !left.is_open();
        return left.was_left; // or the host had no memory for that
    }

    // Gives the stream a set that another one does not need any more; null if there is none.
    set* take_over(caller who, int device, std::uint64_t now) {
        runtime::capture_mode_scope const relaxed;
        set* const spare = sets_.find_spare(now);
        if (!spare)
            return nullptr;
        locked const other(*spare);
        if (!other->rests_without_open())
            return nullptr; // it has changed meanwhile
        strand_open(*other.get());
        if (!other->is_at_rest())
            return nullptr; // no host memory for that
        std::uint64_t const former = other->key.load(base::memory_order_relaxed);
        if (former != 0)
            table_.assign(former, nullptr);
        displaced_.note(former);
        table_.assign(who.key(), spare);
        spare->came_at.store(now, base::memory_order_relaxed); // else the next newcomer would take this set again
        other->name(who, device, recent_bytes.load(base::memory_order_relaxed));
        return spare;
    }

    int const device_;
    Placement root_; // holds no bytes; each set's placement is made as its sibling
    base::mutex mutex_; // held while sets are added or get another stream
    set_list<set> sets_;
    lookup_table<set> table_;
    // Keys of default streams whose sets were given to others. One that comes again lives, so it gets a new set.
    last_numbers<1024> displaced_;
    thread_line<set> threads_; // under 'mutex_'
    base::atomic<std::uint64_t> newcomers_{0};
    order::stranded_blocks stranded_; // under the host's lock
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
