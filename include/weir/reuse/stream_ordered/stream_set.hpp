// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of the bytes that were freed on one stream?
//
// Three kinds of bytes, by who may have them:
//   open       freed on this stream since its event was last recorded: this stream only, no questions asked.
//   covered    freed before 'passed' was recorded: this stream at once; another stream once 'passed' has been reached, or
//              after it has been made to wait for it. They lie in a placement, where they join.
//   deferred   freed here, but used on other streams too, whose events have not been reached: nobody yet. Those that are
//              closed, freed before 'passed' was recorded, anyone may turn into covered ones then.
//
// 'close' records the event and turns open bytes into covered ones. Recording costs as much as ten frees, so it is done once
// for many, and only inside a call that names the stream: then its handle is alive, while at any other moment it may have been
// destroyed, or belong to another stream by now. The last of many blocks has it recorded too, for the pool's end.
//
// Recorded anew, the event puts off what it stood for. So where others want what is covered, 'close' first makes way: known to
// be in no use, it goes to the host's set, else to a set aside, with the event as it was; see stream_exchange.hpp.
//
// invariant: every covered byte's last use comes before 'passed' in its stream's order, also of those from another stream: the
//            taker waited for its event before it recorded its own. What came after the moment of a settle raised 'arrivals'.
// order:     all members need 'lock', the atomics and 'hint' excepted. An event is recorded under it, so that nobody sees the
//            bytes before. While the stream's queue is full (1,021 launches on an H200), recording waits until the device has
//            taken up some of its work, as a launch there would, and so do those who look for bytes in this set; no other
//            stream's queue matters.
// cost:      put and take of a size freed lately: a few instructions. Some 20 KiB a stream, twice where it sets aside.
// not for:   deciding whose bytes to take: see the reuse rule's ladder.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/reuse/stream_ordered/deferred_blocks.hpp>
#include <weir/reuse/stream_ordered/free_hint.hpp>
#include <weir/reuse/stream_ordered/identity.hpp>
#include <weir/reuse/stream_ordered/older_generation.hpp>
#include <weir/reuse/stream_ordered/open_blocks.hpp>
#include <weir/reuse/stream_ordered/safe_event.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/event.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

template <class Placement, class Identity, class Tuning>
class stream_set {
public:
    explicit stream_set(Placement empty) : covered_(std::move(empty)) {}

    base::spin_lock lock;
    base::atomic<stream_set*> next{nullptr}; // the next set of the same pool
    stream_set* aside = nullptr; // right behind it, where its bytes are set aside; null until the first time
    stream_set* settled = nullptr; // the host's, from then on
    bool is_aside = false; // fixed once published
    std::uint64_t looked_at = 0; // in which search of the pool's
    std::size_t offered_at_recall = 0; // all that was free in the pool when what is aside came back last
    base::atomic<bool> wanted{false}; // by other streams, since bytes were set aside or settled
    base::atomic<std::uint64_t> key{0}; // what it is looked up by; 0: its stream is gone, or it is the host's
    weir::reuse::detail::free_hint<Tuning> hint; // what is covered, or deferred and closed
    base::atomic<std::uint64_t> came_at{0}; // how many streams had come to the directory when a default stream came here last

    /// Makes this set, which is at rest, the set of `stream`, whose id is `id` and which belongs to device number `device`.
    void name(stream_ref stream, std::uint64_t as, unsigned long long id, int device) noexcept {
        safe_.start_anew(device);
        id_ = id;
        wanted.store(false, base::memory_order_relaxed);
        // A thread may end without a word, so nothing of its default stream is left without an event.
        open_.start_anew(!runtime::is_per_thread(stream));
        key.store(as, base::memory_order_release);
    }

    /// Whether this is still the set of `stream`, whose id the caller has just asked for.
    bool is_of(unsigned long long id) const noexcept { return id_ == id; }
    int device() const noexcept { return safe_.device(); }

    /// Takes back a block whose last use is in this stream's order, and counts it. False: neither 'put_recent' nor 'put' could.
    [[gnu::always_inline]] bool give(base::range block, stream_ref stream) noexcept {
        bool const recent = put_recent(block);
        if (!recent && !put(block, stream))
            return false;
        used_.gave(block);
        if (used_.blocks == 0 && std::exchange(overflowed_, false) && recent)
            static_cast<void>(close(stream));
        return true;
    }

    /// Takes back a block whose last use is in this stream's order, if it may stay open.
    bool put_recent(base::range block) noexcept {
        bool const kept = open_.put(block);
        arrivals_ += kept;
        return kept;
    }

    /// The same for a block that may not, if the event can be recorded. On the host there is none to record. Never blocks.
    [[gnu::noinline]] bool put(base::range block, stream_ref stream) noexcept {
        if (!stream.is_host() && !close(stream))
            return false;
        ++arrivals_;
        open_.grow_older();
        overflowed_ = !stream.is_host();
        cover(block);
        return true;
    }

    /// Takes back a block that other streams use up to the events `uses`, which it takes; else false, as put.
    bool defer(base::range block, base::growing_array<runtime::event>&& uses, stream_ref stream) noexcept {
        if (!stream.is_host() && !close(stream))
            return false;
        keep_back(block, std::move(uses), true, false);
        return true;
    }

    /// The same, without an event, for a stream that lives and is not captured: its own until the next event.
    void keep_open(base::range block) noexcept {
        ++arrivals_;
        hold(block);
    }

    /// Hands each open block to `sink(range)`, an empty one for those that went out again (see is_untold): the stream is gone.
    /// Where the sink throws, the others stay.
    template <class Sink>
    void leave_open(Sink const& sink) {
        open_.drain(sink);
        if (taken_open_)
            sink(base::range{});
        taken_open_ = false;
    }

    /// Takes back a block, or a `stock` that was lent, of whose last use only `uses` is known: for 'settle'. In the host's set.
    void strand(base::range block, base::growing_array<runtime::event> uses, bool stock = false) noexcept {
        keep_back(block, std::move(uses), false, stock);
    }

    /// Takes back a block that must not be handed out again.
    void lose(base::range block) noexcept { used_.lost_bytes += block.bytes; }
    /// Returns what was just lent, or taken, from covered bytes, these or another set's of which nobody uses a byte. False: the
    /// host had no memory to keep a `stock`.
    bool put_back(base::range bytes, bool stock) noexcept {
        try {
            stock ? receive(bytes, false) : cover(bytes);
            return true;
        } catch (...) {
            return false;
        }
    }

    /// Adds bytes that another set lent; `waited`: after the stream waited for that one's event, and recorded its own.
    /// Throws std::bad_alloc before any change.
    void receive(base::range stock, bool waited) {
        covered_.add(stock);
        update_hint();
        arrivals_ += waited;
    }

    /// Rung 1 at its quickest: a block of just that size that was freed here lately, or an empty range.
    base::range take_recent(std::size_t bytes, std::size_t alignment) noexcept {
        base::range const block = open_.take(Placement::rounded(bytes, alignment), alignment);
        taken_open_ |= block.bytes != 0;
        arrivals_ += block.bytes != 0; // to a settle under way
        return block;
    }

    /// The same from the covered bytes. Throws std::bad_alloc.
    [[gnu::noinline]] base::range take_covered(std::size_t bytes, std::size_t alignment) {
        base::range const block = covered_.take(bytes, alignment);
        update_hint();
        return block;
    }

    /// Rung 1: bytes that this stream may have at once, also of those that no work uses, or an empty range. Throws cuda_error,
    /// std::bad_alloc.
    base::range take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
        if (base::range const block = take_covered(bytes, alignment))
            return block;
        if (base::range const block = take_at_hand(*this, bytes, alignment, open_.bytes()))
            return block;
        bool changed = poll(stream);
        if (!stream.is_host() && is_open())
            changed |= close(stream);
        if (base::range const block = changed ? take_covered(bytes, alignment) : base::range{})
            return block;
        return aside ? base::locked<stream_set>(*aside)->take_covered(bytes, alignment) : base::range{};
    }

    /// Records the event and turns open bytes into covered ones. False, and nothing changed, where it cannot be recorded: the
    /// stream is captured, the handle bears another stream by now, or CUDA failed.
    [[gnu::noinline]] bool close(stream_ref stream) noexcept {
        try {
            // In this order: the id of a captured stream may not be asked for.
            if (runtime::is_capturing(stream) || (!runtime::is_default_stream(stream) && Identity::id(stream) != id_))
                return false;
        } catch (...) {
            return false;
        }
        if (!(aside ? make_way_and_record(stream) : safe_.try_record(stream)))
            return false;
        taken_open_ = false;
        cover_open();
        return true;
    }

    /// Whether any stream may have the covered bytes. Never blocks. Throws cuda_error.
    bool reached() { return safe_.reached(); }

    /// Looks after deferred blocks whose uses are over: closed ones become covered and, where `stream` is this set's
    /// own, others open. With `wait` it makes `stream` wait for the uses that are not over. Whether any moved. Never
    /// blocks. Throws cuda_error, std::bad_alloc.
    bool poll(stream_ref stream, bool wait = false) {
        if (deferred_.empty())
            return false;
        runtime::capture_mode_guard const relaxed;
        open_.reserve(deferred_.size());
        stream_answers answers = deferred_.ask();
        bool const any = deferred_.take_if([&](deferred_block const& each) {
            bool const over = each.is_over(answers);
            bool const covers = over && each.closed;
            if (!covers && (stream.is_host() || (!over && !wait)))
                return false;
            if (!over)
                each.make_wait(stream);
            covers ? covered_.give(each.block) : hold(each.block);
            return true;
        });
        update_hint();
        return any;
    }

    /// All work on the set's device, and all uses that 'list_uses' told, were over when 'arrivals' was what it is:
    /// anyone may have every byte. Throws cuda_error, std::bad_alloc.
    void settle() {
        stream_answers answers = deferred_.ask();
        deferred_.take_if([&](deferred_block const& each) {
            bool const over = each.is_over(answers);
            if (over)
                each.stock ? covered_.add(each.block) : covered_.give(each.block);
            return over;
        });
        cover_open();
        safe_.settle();
        taken_open_ = false;
    }

    /// The covered bytes, up to which event they are, and the deferred blocks. Call `update_hint` after a change, and `arrived`
    /// where bytes in use came.
    Placement& covered() noexcept { return covered_; }
    safe_event& safe() noexcept { return safe_; }
    deferred_blocks& deferred() noexcept { return deferred_; }
    bool is_much() const noexcept { return covered_.free_bytes() >= Tuning::aside_bytes; }
    void arrived() noexcept { ++arrivals_; }
    void update_hint() noexcept { hint.update(covered_, deferred_.closed_bytes()); }

    /// The largest range among the covered ones; 0 where the placement does not tell.
    std::size_t largest_bytes() const noexcept {
        if constexpr (contract::has_largest<Placement>)
            return covered_.largest();
        return 0;
    }
    bool is_open() const noexcept { return !open_.empty(); }
    /// Bytes that only the stream itself, or 'settle', can make anyone's.
    std::size_t open_bytes() const noexcept { return open_.bytes() + deferred_.open_bytes(); }
    /// Whether work that no event tells of may use bytes that are open, or were: who took them may give them elsewhere.
    bool is_untold() const noexcept { return taken_open_ || open_bytes() != 0; }
    /// Whether no work uses a byte of these. Never blocks. Throws cuda_error.
    bool is_at_rest() {
        return !is_untold() && deferred_.empty() && reached() && (!aside || base::locked<stream_set>(*aside)->is_at_rest());
    }

    /// How often bytes came here that were in use until then, or went out while they were open.
    std::uint64_t arrivals() const noexcept { return arrivals_; }
    /// What was handed out less what came back here, perhaps below zero (the sum over a pool's sets is live), and lost.
    base::usage& used() noexcept { return used_; }

private:
    bool make_way_and_record(stream_ref stream) noexcept {
        safe_event const before = safe_;
        make_way();
        if (safe_.try_record(stream))
            return true;
        safe_ = before; // what was lent may come back here, and be in use up to that event, which may have gone aside
        return false;
    }
    // Before the event is recorded anew.
    void make_way() noexcept {
        bool const is_wanted = wanted.load(base::memory_order_relaxed);
        if (!patience_.lasts(is_wanted) || !is_much())
            return;
        try {
            if (safe_.was_reached())
                settle_into(*base::locked<stream_set>(*settled).get(), *this);
            else if (!is_wanted || !set_aside(*this))
                return;
            wanted.store(false, base::memory_order_relaxed);
        } catch (...) { // no host memory: they stay
        }
    }

    void keep_back(base::range block, base::growing_array<runtime::event> uses, bool closed, bool stock) noexcept {
        ++arrivals_;
        try {
            deferred_.add(block, std::move(uses), closed, stock);
        } catch (...) {
            lose(block);
        }
        update_hint();
    }

    void cover(base::range block) noexcept {
        try {
            covered_.give(block);
        } catch (...) {
            hold(block); // covered bytes may always be held back
        }
        update_hint();
    }

    void hold(base::range block) noexcept {
        if (!open_.hold(block))
            lose(block);
    }

    void cover_open() noexcept {
        try {
            open_.drain([this](base::range block) { covered_.give(block); });
        } catch (...) { // no host memory: what is left stays open
        }
        update_hint();
    }

    open_blocks<Tuning> open_;
    deferred_blocks deferred_;
    Placement covered_;
    safe_event safe_;
    bool overflowed_ = false; // since all were back: where all comes and goes without an event, so does the last block
    bool taken_open_ = false; // since the event was recorded
    unsigned long long id_ = 0;
    patience patience_;
    alignas(16) base::usage used_; // bytes and blocks in one cache line
    std::uint64_t arrivals_ = 0;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
