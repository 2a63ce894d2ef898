// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What happens when a buffer is accessed, and what when there is no room for it?
//
// If the buffer is on the device, the access counts itself, and puts its stream behind the work that used the buffer. If not,
// the buffer claims its bytes of the budget; while they are not free, the best victim leaves. The pool below may have less
// room than the budget says: then buffers of that pool leave, too. What the budget or the pool can never hold is refused before
// anybody leaves.
//
// invariant: a buffer that is being accessed does not move. No stream of the set's ends before the pools whose memory was freed
//            on it allow that.
// order:     a claim that finds no victim while others are on the move waits for them. A buffer that leaves waits for none, and
//            one that arrives waits only for those that leave, so nobody waits in a ring. A user's function may access other
//            buffers, so nobody waits for it here. A handler of a pool's may only do what waits for nobody: see
//            spill_record.hpp.
// cost:      an access of a buffer that is on the device: two locks that nobody contends. While buffers leave, also an event.
// not for:   users: see staging/spill.hpp.

#include <cstddef>
#include <cstdio>
#include <new>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/staging/spill/access_order.hpp>
#include <weir/staging/spill/spill_ledger.hpp>
#include <weir/staging/spill/spill_mover.hpp>
#include <weir/staging/spill/spill_record.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// Any thread may call any member; what one buffer's owner calls is said in staging/spill.hpp.
class spill_core {
public:
    spill_core(pool_ref<memory_space::device> pool, pool_ref<memory_space::host> host, std::size_t budget_bytes,
               leaves_before compare, void const* policy)
        : pool_(pool), mover_(pool.device() == any_device ? runtime::current_device() : pool.device(), host),
          ledger_(budget_bytes, compare, policy) {
        if (base::device_accessible(host.space()) && !host.stream_ordered())
            throw usage_error(hands_out_at_once);
        admit(pool);
    }
    spill_core(spill_core const&) = delete;
    spill_core& operator=(spill_core const&) = delete;

    /// Blocks until the pools allow that the set's streams end, where a pool asks for that. If it fails, the streams stay.
    /// Buffers that are still there are told on stderr, and lose their memory and contents.
    ~spill_core() {
        if (std::size_t const left = ledger_.end([&](spill_record& of) { mover_.release(of); }))
            std::fprintf(stderr,
                         "weir: a spill_set ends before %zu of its buffers, which lose their contents; end the buffers, and "
                         "their accesses, before the set\n",
                         left);
        bool may_end = base::try_twice([&] { return mover_.host().settle(), true; });
        for (pool_ref<memory_space::device> const& each : promised_)
            may_end = base::try_twice([&] { return each.settle(), true; }) && may_end;
        if (!may_end)
            mover_.keep_streams();
    }

    pool_ref<memory_space::device> pool() const noexcept { return pool_; }
    spill_ledger& ledger() noexcept { return ledger_; }

    /// Throws usage_error if memory of `pool` lies on another device than the set's, or cannot be freed behind work that uses
    /// it; std::bad_alloc.
    void admit(pool_ref<memory_space::device> pool) {
        int const its = pool.device();
        if (its != any_device && its != mover_.device())
            throw usage_error("weir: the buffers of a spill_set lie on one device; make a set for each device");
        if (!pool.stream_ordered())
            throw usage_error(hands_out_at_once);
        if (pool.streams_may_end())
            return;
        base::lock_guard<base::mutex> const lock(promised_lock_);
        for (pool_ref<memory_space::device> const& each : promised_)
            if (each == pool)
                return;
        promised_.push_back(pool);
    }

    /// Ends a record: now, or at the end of its last access, or of its move. Waits for none.
    void end(spill_record& of) noexcept {
        if (ledger_.leave_to_mover(of))
            return;
        of.lock.lock();
        of.is_orphan = true;
        if (of.live != 0)
            of.uses.forget_names();
        unlock_or_end(of);
    }

    /// The owner of a record, or else an access of it, ends after the set, which is touched no more. One thread at a time.
    static void end_late(spill_record& of, bool owner_ends) noexcept {
        of.is_orphan |= owner_ends;
        of.live -= owner_ends ? 0 : 1;
        if (of.is_orphan && of.live == 0)
            delete &of;
    }

    /// Begins an access, and brings the buffer in. Its address. See 'spillable::access'.
    void* begin(spill_record& of, stream_ref stream, bool writes, runtime::event& at_end) {
        order::placed_stream const on = mover_.placed(stream);
        held_record const held(*this, of);
        if (of.bytes == 0) {
            of.uses.require_ordered(on); // and there is nothing that a stream uses
        } else {
            bool has_room = false;
            if (!of.device)
                bring(of, on, has_room);
            if (!of.uses.goes_on(on, writes)) {
                runtime::device_scope const there(mover_.device());
                of.uses.begin(on, writes, of.live + 1, mover_.device(), at_end);
            }
        }
        if (writes)
            of.is_current = false; // the host's copy is out of date from here on
        ++of.live;
        ledger_.touch(of);
        return of.device;
    }

    /// Ends an access. `at_end`: what 'begin' made.
    void finish(spill_record& of, stream_ref stream, bool wrote, runtime::event&& at_end) noexcept {
        of.lock.lock();
        if (of.bytes != 0)
            of.uses.end(mover_.placed(stream), wrote, std::move(at_end), ledger_.is_short());
        if (--of.live != 0 && of.is_orphan)
            of.uses.forget_names();
        unlock_or_end(of);
    }

    /// Brings a buffer in without an access. False if there is no room. See 'spillable::prefetch'.
    bool prefetch(spill_record& of, stream_ref stream) {
        order::placed_stream const on = mover_.placed(stream);
        held_record const held(*this, of);
        of.uses.require_ordered(on);
        if (of.device || of.bytes == 0 || !(of.is_current || of.is_computed()))
            return true; // it is there, or there is nothing to bring
        bool has_room = false;
        try {
            bring(of, on, has_room);
        } catch (out_of_memory const&) {
            if (has_room) // its function throws
                throw;
            return false;
        }
        ledger_.touch(of);
        return true;
    }

    /// Takes a buffer out. False if it is being accessed, or if the host has no memory; or if it is on the move while the
    /// caller is code that the set called.
    bool spill(spill_record& of) {
        victim_search look;
        look.only = &of;
        look.is_own = false;
        spill_record* victim = nullptr;
        for (unsigned turns = 0; !victim; base::spin(turns++))
            if (!(victim = ledger_.pick(look)) && !look.may_change)
                return look.is_away;
        return take_out(*victim); // and no second try: a handler may have ended the record
    }

    /// Takes buffers out until `bytes` have left, or nobody can any more. `from`: only those of that pool; null: of all. The
    /// bytes that have left. For users, and so for handlers.
    std::size_t spill(std::size_t bytes, pool_ref<memory_space::device> const* from) {
        victim_search look;
        look.from = from;
        look.is_own = false;
        return spill(bytes, look);
    }

private:
    static constexpr char const* hands_out_at_once =
        "weir: a spill_set frees memory behind work that uses it, and this pool hands out at once what is freed; use pools "
        "that are stream ordered, such as 'weir::device_pool' and 'weir::pinned_pool'";

    // A record's lock. Whoever lets it go last ends a record whose owner has ended.
    class held_record {
    public:
        // Throws usage_error if the thread would wait for itself.
        held_record(spill_core& core, spill_record& of) : core_(core), of_(of) {
            if (!of.lock.try_lock()) {
                core.ledger_.require_no_ring(of);
                of.lock.lock();
            }
        }
        held_record(held_record const&) = delete;
        held_record& operator=(held_record const&) = delete;
        ~held_record() { core_.unlock_or_end(of_); }

    private:
        spill_core& core_;
        spill_record& of_;
    };

    // A record on its way in, with the bytes that it claims. They go back unless it arrives.
    struct arrival {
        arrival(spill_ledger& counts, spill_record& which) : ledger(counts), of(which) { ledger.begin_arrival(of); }
        arrival(arrival const&) = delete;
        arrival& operator=(arrival const&) = delete;
        ~arrival() { ledger.end_arrival(of, arrived, copied); }
        spill_ledger& ledger;
        spill_record& of;
        bool arrived = false;
        std::size_t copied = 0;
    };

    // The record's lock is held. `has_room` becomes true once the buffer has memory.
    void bring(spill_record& of, order::placed_stream const& on, bool& has_room) {
        of.uses.require_ordered(on);
        arrival in(ledger_, of);
        if (!of.pool.can_hold(of.bytes, of.alignment))
            ledger_.refuse_for_pool(of);
        make_room(of);
        in.copied = mover_.arrive(of, on, [&](stream_ref stream) {
            void* const data = allocate(of, stream);
            has_room = true;
            if (of.is_computed())
                ledger_.begin_computing(of);
            return data;
        });
        in.arrived = true;
    }
    void make_room(spill_record& of) {
        victim_search look;
        look.waits_for_arrivals = true;
        spill_record* victim = nullptr;
        for (unsigned turns = 0; !ledger_.claim(of, look, victim);)
            if (victim)
                take_out(*victim, look);
            else
                base::spin(turns++);
    }
    void* allocate(spill_record& of, stream_ref stream) {
        for (;;)
            try {
                return of.pool.allocate(stream, of.bytes, of.alignment);
            } catch (out_of_memory const&) {
                victim_search look;
                look.from = &of.pool;
                if (spill(of.bytes, look) == 0)
                    throw;
            }
    }

    std::size_t spill(std::size_t bytes, victim_search& look) {
        std::size_t freed = 0;
        for (unsigned turns = 0; freed < bytes;)
            if (spill_record* const victim = ledger_.pick(look))
                freed += take_out(*victim, look);
            else if (look.may_change)
                base::spin(turns++);
            else
                break;
        return freed;
    }

    // Takes out a record whose place is 'leaving', and unlocks it. False if the host has no memory. Throws cuda_error. Then the
    // record stays.
    bool take_out(spill_record& of) {
        struct departure {
            spill_core& core;
            spill_record& of;
            bool left = false;
            std::size_t copied = 0;
            ~departure() {
                core.ledger_.end_departure(of, left, copied);
                core.unlock_or_end(of);
            }
        } out{*this, of};
        try {
            out.copied = mover_.leave(of, [this] { return spare_host_memory(); });
        } catch (std::bad_alloc const&) {
            return false;
        }
        return out.left = true;
    }
    // The same. The bytes that have left; the search learns what the host lacks.
    std::size_t take_out(spill_record& of, victim_search& look) {
        std::size_t const bytes = of.bytes;
        if (take_out(of))
            return bytes;
        look.host_bytes = bytes;
        return 0;
    }

    // Gives back the host memory that some buffer on the device keeps. False if there is none.
    bool spare_host_memory() noexcept {
        spill_record* const found = ledger_.find_spare();
        if (!found)
            return false;
        mover_.drop_host(*found);
        found->lock.unlock();
        return true;
    }

    // The record's lock is held. Unlocks it; or ends the record if its owner and all accesses have ended.
    void unlock_or_end(spill_record& of) noexcept {
        if (!of.is_orphan || of.live != 0)
            return of.lock.unlock();
        ledger_.remove(of);
        mover_.release(of);
        of.lock.unlock();
        delete &of;
    }

    pool_ref<memory_space::device> pool_;
    spill_mover mover_;
    spill_ledger ledger_;
    base::mutex promised_lock_; // for the pools whose 'settle' comes before the end of the streams
    base::growing_array<pool_ref<memory_space::device>> promised_;
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
