// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which buffers does a set have, what does its budget count, and who is the best victim?
//
// All buffers of a set are in one list. A buffer that comes to the device claims its bytes of the budget first. The ledger's
// lock is the one that all threads share: it is held for a claim and for a look along the list, and never while a buffer
// moves, while a pool allocates, or while a user's function runs.
//
// invariant: the bytes in use are the sum of the bytes of all buffers whose place is not 'away'. A claim never lets them exceed
//            the budget; a budget that is lowered may.
// order:     see spill_record.hpp: under this lock, records' locks are only tried.
// cost:      a claim: a lock. A victim: a look at each buffer, some 20 ns each.
// not for:   moving: see spill_core.hpp.

#include <cstddef>
#include <cstdint>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/staging/spill/spill_record.hpp>
#include <weir/staging/spill_state.hpp>
#include <weir/staging/victims.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

namespace detail {

using leaves_before = bool (*)(void const* policy, spill_candidate const& a, spill_candidate const& b);

/// What a search for a victim wants, and what it learns.
struct victim_search {
    pool_ref<memory_space::device> const* from = nullptr; ///< only of this pool; null: of any
    spill_record* only = nullptr;                         ///< only this one; null: any
    bool is_own = true;                ///< the set searches for its own needs, and no member that code of the user's may call
    bool waits_for_arrivals = false;   ///< whether a buffer that arrives may be a victim soon
    std::size_t host_bytes = SIZE_MAX; ///< the host has no memory for so much
    bool may_change = false;           ///< there is no victim now, but others are on the move
    bool is_away = false;              ///< some were away already
    std::size_t found_bytes = 0;       ///< of all that may leave now, if the host has memory for them
};

/// Any thread may call any member.
class spill_ledger {
public:
    spill_ledger(std::size_t budget_bytes, leaves_before compare, void const* policy) noexcept
        : compare_(compare), policy_(policy), budget_(budget_bytes) {}
    spill_ledger(spill_ledger const&) = delete;
    spill_ledger& operator=(spill_ledger const&) = delete;

    void enter(spill_record& fresh) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        fresh.after = first_;
        if (first_)
            first_->before = &fresh;
        first_ = &fresh;
    }
    /// From here on nobody finds the record, whose lock is held. Its bytes are counted no more.
    void remove(spill_record& of) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        (of.before ? of.before->after : first_) = of.after;
        if (of.after)
            of.after->before = of.before;
        if (of.place != spill_place::away)
            in_use_ -= of.bytes;
    }

    /// The set ends: notes that in each record which is still there, and calls free(record), unless it is being accessed. How
    /// many there are. Nobody else uses the ledger.
    template <class Free>
    std::size_t end(Free const& free) noexcept {
        std::size_t count = 0;
        for (spill_record* each = first_; each; each = each->after, ++count) {
            each->is_late = true;
            if (each->live == 0)
                free(*each);
        }
        return count;
    }

    /// Notes an access of the record, whose lock is held.
    void touch(spill_record& of) noexcept { of.last_use = clock_.fetch_add(1, base::memory_order_relaxed) + 1; }

    /// Whether a buffer has left during the last accesses, so that others may leave soon.
    bool is_short() const noexcept {
        return clock_.load(base::memory_order_relaxed) < short_until_.load(base::memory_order_relaxed);
    }

    /// Claims the bytes of a record, whose place becomes 'arriving'. True if there was room. If not, `victim` is who leaves
    /// first: its lock is held, and its place is 'leaving'. If nobody can leave, now or soon, throws out_of_memory.
    bool claim(spill_record& of, victim_search& look, spill_record*& victim) {
        base::lock_guard<base::mutex> const lock(lock_);
        if (of.bytes <= budget_ && in_use_ <= budget_ - of.bytes) {
            in_use_ += of.bytes;
            of.place = spill_place::arriving;
            return true;
        }
        victim = of.bytes <= budget_ ? search(look) : nullptr;
        bool const is_enough = victim && in_use_ - look.found_bytes <= budget_ - of.bytes;
        if (is_enough || look.may_change) {
            if (victim)
                start(*victim);
            return false;
        }
        if (victim)
            victim->lock.unlock();
        refuse(of, look);
    }
    /// Its pool can never hold the record, whoever leaves. Throws out_of_memory.
    [[noreturn]] void refuse_for_pool(spill_record const& of) {
        base::lock_guard<base::mutex> const lock(lock_);
        text const needs = "the buffer needs " + base::exact_bytes_text(of.bytes) + " on the device, ";
        throw out_of_memory(
            of.bytes, {figures(), needs + "more than its pool can ever hold; raise the pool's limit, or cut the buffer"});
    }
    /// The victim alone, or null.
    spill_record* pick(victim_search& look) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        spill_record* const victim = search(look);
        if (victim)
            start(*victim);
        return victim;
    }

    /// Whether a record is on the device, or on its way there.
    bool is_on_device(spill_record const& of) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        return of.place != spill_place::away && of.place != spill_place::leaving;
    }
    template <class Value>
    void declare(spill_record& of, Value spill_record::* what, Value value) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        of.*what = value;
    }
    /// The owner of a record ends. Whether a thread moves it just now, which then ends it.
    bool leave_to_mover(spill_record& of) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        of.is_orphan |= of.mover != 0;
        return of.mover != 0;
    }
    /// This thread is about to wait for the record's lock. Throws usage_error if that would be a wait for itself, or might be.
    void require_no_ring(spill_record const& of) {
        base::lock_guard<base::mutex> const lock(lock_);
        if (of.mover == base::this_thread() && of.place == spill_place::computing)
            throw usage_error("weir: the function that computes a buffer cannot access that buffer; it writes to the address "
                              "that it is given");
        if (of.mover != 0)
            require_no_move();
    }

    /// This thread brings in a record, whose lock it holds. Throws usage_error in a handler that another move has called.
    void begin_arrival(spill_record& of) {
        base::lock_guard<base::mutex> const lock(lock_);
        require_no_move();
        of.mover = base::this_thread();
        ++moving_;
    }
    /// The user's function is about to run for a record that arrives.
    void begin_computing(spill_record& of) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        of.place = spill_place::computing;
    }
    /// A record has arrived, with `copied` bytes that came from the host; or it has not, and the claim ends, if there is one.
    void end_arrival(spill_record& of, bool arrived, std::size_t copied) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        if (!arrived && of.place != spill_place::away)
            in_use_ -= of.bytes;
        else if (arrived && of.is_computed())
            totals_.computed_bytes += of.bytes;
        of.place = arrived ? spill_place::here : spill_place::away;
        of.mover = 0;
        --moving_;
        totals_.to_device_bytes += copied;
    }
    /// A record has left, with `copied` bytes that went to the host; or it stays.
    void end_departure(spill_record& of, bool left, std::size_t copied) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        of.place = left ? spill_place::away : spill_place::here;
        of.mover = 0;
        --moving_;
        if (!left)
            return;
        short_until_.store(clock_.load(base::memory_order_relaxed) + remembered_accesses, base::memory_order_relaxed);
        in_use_ -= of.bytes;
        totals_.to_host_bytes += copied;
        totals_.uncopied_bytes += of.bytes - copied;
    }

    /// A record on the device that keeps host memory for its next departure, with its lock held; or null. One whose host
    /// memory is up to date would leave without a copy, so it is taken only while an access keeps it, and if there is no other.
    spill_record* find_spare() noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        for (bool const is_current : {false, true})
            for (spill_record* each = first_; each; each = each->after)
                if (each->place == spill_place::here && each->lock.try_lock()) {
                    if (each->host && each->is_current == is_current && (!is_current || each->live != 0))
                        return each;
                    each->lock.unlock();
                }
        return nullptr;
    }

    void set_budget(std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        budget_ = bytes;
    }
    /// By how much the bytes in use exceed the budget.
    std::size_t excess() noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        return in_use_ > budget_ ? in_use_ - budget_ : 0;
    }
    spill_state state() noexcept {
        base::lock_guard<base::mutex> const lock(lock_);
        spill_state now = totals_;
        now.budget_bytes = budget_;
        now.in_use_bytes = in_use_;
        for (spill_record* each = first_; each; each = each->after) {
            ++now.buffers;
            now.accessed_bytes += each->place == spill_place::here && is_accessed(*each) ? each->bytes : 0;
        }
        return now;
    }

private:
    // The lock is held, as in all that follows. Returns the best victim, whose lock is held.
    spill_record* search(victim_search& look) noexcept {
        spill_record* best = nullptr;
        look.may_change = false;
        look.found_bytes = 0;
        for (spill_record* each = look.only ? look.only : first_; each; each = look.only ? nullptr : each->after) {
            if (look.from && each->pool != *look.from)
                continue;
            if (each->mover != 0) {
                look.may_change |= look.only || each->place == spill_place::leaving ||
                                   (look.waits_for_arrivals && each->place == spill_place::arriving);
                continue;
            }
            if (each->place == spill_place::away) {
                look.is_away = true;
                continue;
            }
            if (!each->lock.try_lock()) { // somebody begins or ends an access
                look.may_change = true;
                continue;
            }
            bool const may_leave = each->live == 0 && !(each->needs_host_memory() && each->bytes >= look.host_bytes);
            spill_record* passed_over = each;
            look.found_bytes += may_leave ? each->bytes : 0;
            if (may_leave && (!best || is_better(*each, *best))) {
                passed_over = best;
                best = each;
            }
            if (passed_over)
                passed_over->lock.unlock();
        }
        if (look.may_change && !look.is_own && is_moving([](spill_record const&) { return true; }))
            look.may_change = false; // who is waited for may wait for the end of this move
        return best;
    }
    void start(spill_record& victim) noexcept {
        victim.place = spill_place::leaving;
        victim.mover = base::this_thread();
        ++moving_;
    }
    // Whether this thread is moving a record that is `such`.
    template <class Such>
    bool is_moving(Such const& such) const noexcept {
        if (moving_ != 0)
            for (spill_record const* each = first_; each; each = each->after)
                if (each->mover == base::this_thread() && such(*each))
                    return true;
        return false;
    }
    // A function that computes a buffer may access others: nobody waits for it but who needs that buffer.
    void require_no_move() const {
        if (is_moving([](spill_record const& each) { return each.place != spill_place::computing; }))
            throw usage_error("weir: a handler that makes room for a buffer cannot bring in another one, nor access what is on "
                              "the move; it may spill buffers, ask about them and end them");
    }
    bool is_better(spill_record const& a, spill_record const& b) const noexcept {
        std::uint64_t const now = clock_.load(base::memory_order_relaxed); // after all accesses of both, whose locks are held
        return compare_(policy_, a.candidate(now), b.candidate(now));
    }
    static bool is_accessed(spill_record& of) noexcept {
        if (!of.lock.try_lock())
            return true;
        bool const is = of.live != 0;
        of.lock.unlock();
        return is;
    }

    memory_report figures() const {
        memory_report now;
        now.name = "spill_set";
        now.in_use_bytes = now.reserved_bytes = in_use_;
        now.limit_bytes = budget_;
        return now;
    }
    // Whether the host has memory is known only once a buffer tries to leave; so what is needed is said as a least figure.
    [[noreturn]] void refuse(spill_record const& of, victim_search const& look) const {
        memory_report const now = figures();
        text const needed = "the buffer needs " + base::exact_bytes_text(of.bytes) + " on the device, ";
        text const all = base::exact_bytes_text(budget_);
        if (of.bytes > budget_)
            throw out_of_memory(of.bytes, {now, needed + "more than the set's budget of " + all +
                                                    "; raise the budget ('set_budget'), or cut the buffer"});
        throw out_of_memory(
            of.bytes, {now, needed + "the set's budget is " + all + ", and not enough of the other buffers can leave: " +
                                (look.host_bytes != SIZE_MAX ? "the host pool has no memory for them; give it more, "
                                                             : "they are being accessed; end an access, ") +
                                "or raise the budget to at least " +
                                base::exact_bytes_text(in_use_ - look.found_bytes + of.bytes)});
    }

    static constexpr std::uint64_t remembered_accesses = 4096; // more than most programs make on their way round

    leaves_before compare_;
    void const* policy_;
    base::atomic<std::uint64_t> clock_{0}; // accesses so far
    base::atomic<std::uint64_t> short_until_{0};
    base::mutex lock_; // for what follows
    spill_record* first_ = nullptr;
    std::size_t budget_;
    std::size_t in_use_ = 0;
    std::size_t moving_ = 0; // records that have a mover
    spill_state totals_; // of what moved
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
