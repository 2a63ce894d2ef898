// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which set belongs to the stream that a caller names?
//
// The directory keeps a set of free bytes for each stream (stream_set.hpp). It finds a set by the stream's key, without a
// lock, and makes one when it sees a stream for the first time. It also lists all sets, for those who look for bytes
// elsewhere.
//
// Streams end, and CUDA gives their handles to new ones. The directory notices this by the stream's id (Identity). Then the
// old set is retired: nobody calls for it any more, and the new stream gets a set of its own. No event tells of the old
// stream's last frees, its open bytes. They are stranded: they leave the set for a list that only 'settle' empties. The other
// bytes stay in the retired set, where rungs 2 and 4 of the ladder (reuse/stream_ordered.hpp) find them.
//
// A set whose bytes no work uses can serve another stream, which then gets those bytes too. First in line are retired sets,
// then the set of the default stream that has not come here for longest, since its thread may have ended. If that stream does
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
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/base/usage.hpp>
#include <weir/order/stranded_blocks.hpp>
#include <weir/reuse/stream_ordered/deferred_blocks.hpp>
#include <weir/reuse/stream_ordered/identity.hpp>
#include <weir/reuse/stream_ordered/last_numbers.hpp>
#include <weir/reuse/stream_ordered/lookup_table.hpp>
#include <weir/reuse/stream_ordered/set_waits.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Any thread may call any member. `Set`: a stream_set; `Identity`: how streams are told apart.
template <class Set, class Identity>
class stream_directory {
public:
    using locked = weir::base::locked<Set>;

    /// `device`: the device of every stream; any_device: they may be of any. `make()` makes an empty set.
    template <class MakeSet>
    stream_directory(int device, MakeSet const& make) : device_(device) {
        publish(make());
    }
    stream_directory(stream_directory const&) = delete;
    stream_directory& operator=(stream_directory const&) = delete;
    /// Blocks until other streams have passed their uses of freed blocks. Giving memory back to a device waits for that
    /// device only, and these streams may belong to another one.
    ~stream_directory() {
        try {
            base::growing_array<shared_uses> uses;
            for (Set* each = first(); each; each = following(*each))
                each->deferred().list_uses(uses);
            wait_for(uses);
        } catch (...) { // the device has failed: nothing runs any more
        }
        for (Set* each = first(); each;)
            delete std::exchange(each, following(*each));
    }

    /// The newest set. The others follow, and the host's is the last. Whoever looks at all of them in this order misses no
    /// byte that is set aside meanwhile.
    Set* first() const noexcept { return first_.load(base::memory_order_acquire); }
    static Set* following(Set const& set) noexcept { return set.next.load(base::memory_order_acquire); }

    /// The host's set, locked. No work uses the bytes in it.
    locked settled() noexcept { return locked(*host_); }
    bool is_settled(Set const& set) const noexcept { return &set == host_; }

    /// Takes back a block of whose last use nothing is known, and counts it as freed. It is stranded: only 'settle' makes it
    /// free.
    void strand(base::range block) noexcept {
        locked const host = settled();
        host->used().gave(block);
        try {
            stranded_.add(block, any_device);
        } catch (...) {
            host->lose(block);
        }
    }

    /// The set of `stream`, locked. `make` makes it if the stream is new. With `verify`, the stream is told apart from an
    /// earlier one of the same handle. Throws usage_error for another device's stream, cuda_error, std::bad_alloc.
    template <class MakeSet>
    [[gnu::always_inline]] locked enter(stream_ref stream, bool verify, MakeSet const& make) {
        if (stream.is_host())
            return locked(*host_);
        if (runtime::is_default_stream(stream))
            return enter_by_default(stream, verify, make);
        bool const asks = Identity::asks && verify;
        return enter_by(runtime::key_of(stream), stream, asks, asks ? Identity::id(stream) : 0, make);
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

    /// The stranded bytes; each block counts as 16 KiB at least. Takes no lock.
    std::size_t stranded_bytes() const noexcept { return stranded_.weight(); }

    /// Bytes of which no event tells when others may have them; 'settle' makes them available.
    std::size_t unsettled_bytes() noexcept { return used().unsettled_bytes; }

    /// Calls visit(placement) for the covered bytes of each set whose event was reached and which may hold `least_bytes`,
    /// until a call answers true. Never blocks. Throws cuda_error, std::bad_alloc, and what the visitor throws.
    template <class Visit>
    void visit_unused(Visit const& visit, std::size_t least_bytes) {
        runtime::capture_mode_scope const relaxed;
        for (Set* each = first(); each; each = following(*each)) {
            if (!each->hint.may_hold(least_bytes))
                continue;
            locked const donor(*each);
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
        for (Set* each = first(); each; each = following(*each)) {
            locked const own(*each);
            sum.bytes += own->used().bytes;
            sum.blocks += own->used().blocks;
            sum.lost_bytes += own->used().lost_bytes;
            sum.unsettled_bytes += own->open_bytes();
            if (sum.largest_free_bytes < own->largest_bytes())
                sum.largest_free_bytes = own->largest_bytes();
        }
        sum.unsettled_bytes += stranded_under_lock();
        // This is no snapshot. What other threads move between sets meanwhile may be missing, so the sum may be below zero.
        sum.not_below_zero();
        return sum;
    }

    /// Makes `empty` the older generation of `owner`, which has none: the set in which its bytes are set aside. 'make' has
    /// made `empty`, and `owner` is one of these sets.
    void add_aside(Set& owner, Set* empty) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        locked const own(owner);
        own->aside = empty;
        own->settled = host_;
        empty->is_aside = true;
        empty->next.store(following(owner), base::memory_order_relaxed);
        owner.next.store(empty, base::memory_order_release);
    }

private:
    std::size_t stranded_under_lock() noexcept {
        locked const host = settled();
        return stranded_.bytes();
    }

    // The set is locked, and its stream's handle names another stream by now, so nobody calls for it any more. The open bytes
    // leave the set. What remains is at rest once the event was reached, and the set can serve another stream then.
    void retire(Set& gone) noexcept {
        gone.key.store(0, base::memory_order_relaxed);
        locked const host = settled();
        try {
            gone.leave_open([&](base::range block) { stranded_.add(block, gone.device()); });
        } catch (...) { // no host memory: they stay, and only 'settle' frees them here too
        }
    }

    // Locks the set if it has this key and, if the caller `asks`, this stream id. False: it is not locked.
    [[gnu::always_inline]] static bool lock_if(Set& set, std::uint64_t key, bool asks, unsigned long long id) noexcept {
        set.lock.lock();
        if (set.key.load(base::memory_order_relaxed) == key && (!asks || set.is_of(id)))
            return true;
        set.lock.unlock();
        return false;
    }

    template <class MakeSet>
    [[gnu::always_inline]] locked enter_by(std::uint64_t key, stream_ref stream, bool asks, unsigned long long id,
                                           MakeSet const& make) {
        Set* const found = table_.find(key);
        return found && lock_if(*found, key, asks, id) ? locked(*found, locked::already_held)
                                                       : enter_anew(found, stream, key, asks, id, make);
    }

    // The part of 'enter' for a default stream, whose key only CUDA can tell. Not inlined, like 'enter_anew'.
    template <class MakeSet>
    [[gnu::noinline]] locked enter_by_default(stream_ref stream, bool verify, MakeSet const& make) {
        if (!(Identity::asks && verify)) // else the caller has asked already
            runtime::require_no_capture(stream);
        std::uint64_t const key = runtime::key_of(stream);
        // If it is another stream's by now, that stream seems to have come a little later than it did, which is harmless.
        if (Set* const found = table_.find(key))
            found->came_at.store(newcomers_.load(base::memory_order_relaxed), base::memory_order_relaxed);
        return enter_by(key, stream, false, 0, make);
    }

    // The part of 'enter' for a set at hand that is not the stream's, or for none. Not inlined, so that the usual path saves
    // no registers.
    template <class MakeSet>
    [[gnu::noinline]] locked enter_anew(Set* found, stream_ref stream, std::uint64_t key, bool asks,
                                        unsigned long long id, MakeSet const& make) {
        do
            found = &renew(found, stream, key, make);
        while (!lock_if(*found, key, asks, id));
        return locked(*found, locked::already_held);
    }

    // Finds or makes the set of `stream`, since the one at hand is not its own (null: there is none). That one may have been
    // retired and used again meanwhile, or it belongs to an earlier stream of the same handle, and is retired here.
    template <class MakeSet>
    Set& renew(Set* at_hand, stream_ref stream, std::uint64_t key, MakeSet const& make) {
        runtime::require_no_capture(stream);
        if (at_hand) {
            unsigned long long const id = Identity::id(stream);
            locked const other(*at_hand);
            if (Identity::asks && !runtime::is_default_stream(stream) && other->key.load(base::memory_order_relaxed) == key &&
                !other->is_of(id))
                retire(*other.get());
        }
        return create(stream, key, make);
    }

    template <class MakeSet>
    Set& create(stream_ref stream, std::uint64_t key, MakeSet const& make) {
        base::lock_guard<base::mutex> const lock(mutex_);
        Set* const present = table_.find(key);
        if (present && present->key.load(base::memory_order_relaxed) == key)
            return *present; // another thread was here first
        int const device = require_device(stream);
        unsigned long long const id = Identity::id(stream);
        std::uint64_t const now = newcomers_.fetch_add(1, base::memory_order_relaxed) + 1;
        if (count_ >= look_for_spare_at_ && !robbed_.take_out(key)) {
            runtime::capture_mode_scope const relaxed;
            Set* spare = find_spare(false);
            if (spare && !locked(*spare)->is_at_rest())
                spare = find_spare(true);
            if (!spare)
                look_for_spare_at_ = 2 * count_;
            else if (locked const other(*spare); other->is_at_rest()) { // it may have changed meanwhile
                std::uint64_t const former = other->key.load(base::memory_order_relaxed);
                if (former != 0)
                    table_.assign(former, nullptr);
                robbed_.note(former);
                table_.assign(key, spare);
                spare->came_at.store(now, base::memory_order_relaxed); // else the next newcomer would take this set again
                other->name(stream, key, id, device);
                return *spare;
            }
        }
        table_.reserve_one();
        Set* const fresh = make();
        fresh->came_at.store(now, base::memory_order_relaxed);
        fresh->name(stream, key, id, device);
        table_.assign(key, fresh);
        return publish(fresh);
    }

    // A set that another stream can take over; null: there is none. With `asks` it is at rest: this asks each set about that,
    // which is what costs most. Without, the caller must ask.
    Set* find_spare(bool asks) {
        Set* best = nullptr;
        for (Set* each = first(); each && !(best && best->key.load(base::memory_order_relaxed) == 0); each = following(*each)) {
            std::uint64_t const key = each->key.load(base::memory_order_relaxed);
            std::uint64_t const came_at = each->came_at.load(base::memory_order_relaxed);
            bool const is_first = !best || key == 0 || came_at < best->came_at.load(base::memory_order_relaxed);
            if (each != host_ && !each->is_aside && (key == 0 || (key & 1) != 0) && is_first &&
                (!asks || locked(*each)->is_at_rest()))
                best = each;
        }
        return best;
    }

    Set& publish(Set* set) noexcept {
        Set* const before = first_.load(base::memory_order_relaxed);
        set->next.store(before, base::memory_order_relaxed);
        if (!before)
            host_ = set;
        first_.store(set, base::memory_order_release);
        ++count_;
        return *set;
    }

    int device_;
    base::mutex mutex_; // held in 'create' and 'add_aside'
    lookup_table<Set> table_;
    base::atomic<Set*> first_{nullptr};
    // Keys of default streams whose sets were given to others. One that comes again lives, so it gets a new set.
    last_numbers<1024> robbed_;
    base::atomic<std::uint64_t> newcomers_{0};
    Set* host_ = nullptr;      // the first one made
    order::stranded_blocks stranded_; // under the host's lock
    std::size_t count_ = 0;
    std::size_t look_for_spare_at_ = 16; // sets; doubles when no spare was found, so that looking stays cheap
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
