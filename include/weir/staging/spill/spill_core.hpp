// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What happens when a buffer is accessed, and what when there is no room for it?
//
// If the buffer is on the device, the access counts itself, and puts its stream behind the work that used the buffer. If not,
// the buffer claims its bytes of the budget; while they are not free, the best victim leaves. The pool below may have less
// room than the budget says: then buffers of that pool leave, too.
//
// invariant: a buffer that is being accessed does not move.
// order:     a claim that finds no victim while others are on the move waits for them. A buffer that leaves waits for none, and
//            one that arrives waits only for those that leave, so nobody waits in a ring. A user's function may access other
//            buffers, so nobody waits for it here.
// cost:      an access of a buffer that is on the device: two locks that nobody contends. While buffers leave, also an event.
// not for:   users: see staging/spill.hpp.

#include <cstddef>
#include <new>
#include <utility>
#include <weir/base/error.hpp>
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
          ledger_(budget_bytes, compare, policy) {}

    pool_ref<memory_space::device> pool() const noexcept { return pool_; }
    spill_ledger& ledger() noexcept { return ledger_; }

    /// Throws usage_error if memory of `pool` lies on another device than the set's.
    void require_device_of(pool_ref<memory_space::device> pool) const {
        int const its = pool.device();
        if (its != any_device && its != mover_.device())
            throw usage_error("weir: the buffers of a spill_set lie on one device; make a set for each device");
    }

    /// Ends a record: now, or at the end of its last access.
    void end(spill_record& of) noexcept {
        of.lock.lock();
        of.is_orphan = true;
        unlock_or_end(of);
    }

    /// Begins an access, and brings the buffer in. Its address. See 'spillable::access'.
    void* begin(spill_record& of, stream_ref stream, bool writes, runtime::event& at_end) {
        order::placed_stream const on = mover_.placed(stream);
        refuse_own_function(of);
        base::lock_guard<base::mutex> const lock(of.lock);
        bool has_room = false;
        if (!of.device && of.bytes != 0)
            bring(of, on, has_room);
        if (!of.uses.goes_on(on, writes)) {
            runtime::device_scope const there(mover_.device());
            of.uses.begin(on, writes, of.live + 1, mover_.device(), at_end);
        }
        if (writes)
            of.is_current = false; // the host's copy is out of date from here on
        ++of.live;
        ledger_.touch(of);
        return of.device;
    }

    /// Ends an access. `at_end`: what 'begin' made.
    void finish(spill_record& of, stream_ref stream, bool wrote, runtime::event&& at_end) noexcept {
        if (at_end && !base::try_twice([&] { return record(at_end, stream), true; }) &&
            !base::try_twice([&] { return wait_for(stream), true; }))
            return; // nobody can say where the work ends, so the buffer stays as if the access had not ended
        of.lock.lock();
        bool const is_recorded = static_cast<bool>(at_end);
        of.uses.end(mover_.placed(stream), wrote, std::move(at_end));
        if (!is_recorded && ledger_.is_short())
            base::try_twice([&] { return record_end(of, stream), true; }); // if not: see 'record_end'
        --of.live;
        unlock_or_end(of);
    }

    /// Brings a buffer in without an access. False if there is no room. See 'spillable::prefetch'.
    bool prefetch(spill_record& of, stream_ref stream) {
        order::placed_stream const on = mover_.placed(stream);
        refuse_own_function(of);
        require_ordered_here(on);
        base::lock_guard<base::mutex> const lock(of.lock);
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

    /// Takes a buffer out. False if it is being accessed, or if the host has no memory.
    bool spill(spill_record& of) {
        refuse_own_function(of);
        of.lock.lock();
        if (!of.device || of.live != 0) {
            bool const is_away = !of.device;
            of.lock.unlock();
            return is_away;
        }
        ledger_.set_place(of, spill_place::leaving);
        return take_out(of);
    }

    /// Takes buffers out until `bytes` have left, or nobody can any more. `from`: only those of that pool; null: of all. The
    /// bytes that have left.
    std::size_t spill(std::size_t bytes, pool_ref<memory_space::device> const* from) {
        victim_search look{from, false};
        std::size_t freed = 0;
        for (int turns = 0; freed < bytes;)
            if (spill_record* const victim = ledger_.pick(look))
                freed += take_out(*victim, look);
            else if (look.may_change)
                base::spin(turns++);
            else
                break;
        return freed;
    }

    /// Throws usage_error if this thread is in the function that computes `of`, whose lock it holds.
    static void refuse_own_function(spill_record const& of) {
        if (of.computed_by.load(base::memory_order_relaxed) == base::this_thread())
            throw usage_error("weir: the function that computes a buffer cannot use that buffer; it writes to the address that "
                              "it is given");
    }

private:
    // The bytes that a buffer has claimed. They go back unless it arrives.
    struct claim {
        spill_ledger& ledger;
        spill_record& of;
        bool arrived = false;
        std::size_t copied = 0;
        ~claim() { ledger.end_arrival(of, arrived, copied); }
    };

    void require_ordered_here(order::placed_stream const& on) const {
        runtime::device_scope const there(mover_.device());
        require_ordered(on);
    }

    // The record's lock is held. `has_room` becomes true once the buffer has memory.
    void bring(spill_record& of, order::placed_stream const& on, bool& has_room) {
        require_ordered_here(on);
        make_room(of);
        claim room{ledger_, of};
        room.copied = mover_.arrive(of, on, [&](stream_ref stream) {
            void* const data = allocate(of, stream);
            has_room = true;
            if (of.is_computed())
                ledger_.set_place(of, spill_place::computing);
            return data;
        });
        room.arrived = true;
    }
    void make_room(spill_record& of) {
        victim_search look{nullptr, true};
        spill_record* victim = nullptr;
        for (int turns = 0; !ledger_.claim(of, look, victim);)
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
                if (spill(of.bytes, &of.pool) == 0)
                    throw;
            }
    }

    // Takes out a record whose place is 'leaving', and unlocks it. False if the host has no memory. Throws cuda_error. Then the
    // record stays.
    bool take_out(spill_record& of) {
        struct departure {
            spill_ledger& ledger;
            spill_record& of;
            bool left = false;
            std::size_t copied = 0;
            ~departure() {
                ledger.end_departure(of, left, copied);
                of.lock.unlock();
            }
        } out{ledger_, of};
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

    void record_end(spill_record& of, stream_ref stream) const {
        runtime::device_scope const there(mover_.device());
        of.uses.record_end(mover_.placed(stream), mover_.device());
    }
    void record(runtime::event& at_end, stream_ref stream) const {
        runtime::device_scope const there(mover_.device());
        at_end.record(stream);
    }
    void wait_for(stream_ref stream) const {
        runtime::device_scope const there(mover_.device());
        synchronize(stream);
    }

    pool_ref<memory_space::device> pool_;
    spill_mover mover_;
    spill_ledger ledger_;
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
