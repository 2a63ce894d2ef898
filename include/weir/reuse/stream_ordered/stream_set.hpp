// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of the bytes that were freed on one stream?
//
// They are of three kinds, by who may have them:
//   open       freed since the stream's event was last recorded: only this stream may have them, and it asks nobody.
//   covered    freed before the event 'passed' was recorded: this stream may have them at once, another one once 'passed' was
//              reached, or after it was made to wait for it. They lie in a placement, where neighbours join.
//   deferred   freed here, but used on other streams that have not yet passed these uses: nobody may have them. One is closed
//              if it was freed before 'passed' was recorded: once its uses are over, anyone may turn it into covered bytes.
//
// 'close' records the event, which turns open bytes into covered ones. That costs as much as ten frees, so it is done once
// for many; and only in a call that names the stream, since its handle is alive then. At any other moment it may be
// destroyed, or another stream's. The last of many blocks that comes back has it recorded too, as the pool may end next.
//
// A new record delays all that the event stood for. So if other streams want covered bytes, 'close' first makes way: it moves
// them to the host's set if no work uses them, else with the old event to this set's older generation (older_generation.hpp).
//
// invariant: each covered byte's last use comes before 'passed' in its stream's order, even if it was on another stream: the
//            taker waited for that one's event before it recorded its own. Bytes that come during a settle raise 'arrivals'.
// order:     all members need 'lock', except the atomics and 'hint'. Events are recorded under the lock, so nobody sees bytes
//            before their event. If the stream's queue is full (1,021 launches on an H200), recording waits, as a launch
//            would, until the device has taken up some of its work; who looks for bytes in this set waits too. Other streams'
//            queues do not matter.
// cost:      put and take of a size freed lately: a few instructions. About 20 KiB a stream, or twice that with an older
//            generation.
// not for:   deciding whose bytes to take: see the reuse rule's ladder.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/order/stream_answers.hpp>
#include <weir/reuse/stream_ordered/caller.hpp>
#include <weir/reuse/stream_ordered/deferred_blocks.hpp>
#include <weir/reuse/stream_ordered/older_generation.hpp>
#include <weir/reuse/stream_ordered/open_blocks.hpp>
#include <weir/reuse/stream_ordered/safe_event.hpp>
#include <weir/reuse/stream_ordered/stream_set/set_counts.hpp>
#include <weir/reuse/stream_ordered/stream_set/set_notes.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/event.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

template <class Placement, class Identity, class Tuning>
class stream_set : public set_notes<stream_set<Placement, Identity, Tuning>, Tuning> {
public:
    explicit stream_set(Placement empty) : covered_(std::move(empty)) {}

    /// Makes this set, which is at rest, the set of the caller's stream, of which all is known. `device`: the stream's.
    /// `recent_bytes`: see Tuning; under a limit it may be less.
    void name(caller<Identity> who, int device, std::size_t recent_bytes = Tuning::recent_bytes) noexcept {
        safe_.start_anew(device);
        id_ = who.id();
        this->wanted.store(false, base::memory_order_relaxed);
        open_.start_anew(recent_bytes);
        this->key.store(who.key(), base::memory_order_release);
    }

    /// The id of the stream whose set this is; 0 where Identity asks nothing.
    unsigned long long id() const noexcept { return id_; }
    int device() const noexcept { return safe_.device(); }

    /// Takes back a block whose last use is in this stream's order, and counts it. False: neither 'put_recent' nor 'put' can.
    [[gnu::always_inline]] bool give(base::range block, stream_ref stream) noexcept {
        bool const recent = put_recent(block);
        if (!recent && !put(block, stream))
            return false;
        used_.gave(block);
        if (recorded_since_idle_ && used_.blocks() == 0) {
            recorded_since_idle_ = false;
            if (recent)
                static_cast<void>(close(stream));
        }
        return true;
    }

    /// Takes back a block whose last use is in this stream's order, if it may stay open.
    bool put_recent(base::range block) noexcept {
        bool const kept = open_.put(block);
        arrivals_ += kept;
        return kept;
    }

    /// The same for a block that may not stay open; false if the event cannot be recorded. The host needs none. Waits at
    /// most for room in a full queue.
    [[gnu::noinline]] bool put(base::range block, stream_ref stream) noexcept {
        if (!stream.is_host() && !close(stream))
            return false;
        ++arrivals_;
        open_.count_free_elsewhere();
        recorded_since_idle_ = !stream.is_host();
        cover(block);
        return true;
    }

    /// Takes back a block that other streams use up to the events `uses`, which it takes. False, as put: it took nothing.
    bool defer(base::range block, base::growing_array<runtime::event>&& uses, stream_ref stream) noexcept {
        if (!stream.is_host() && !close(stream))
            return false;
        keep_back(block, std::move(uses), true, false);
        return true;
    }

    /// The same without an event, for a stream that lives and is not captured: the block stays open until the next event.
    void keep_open(base::range block) noexcept {
        ++arrivals_;
        hold(block);
    }

    /// For a stream that is gone: hands each open block to `sink(range)`, and an empty range if open ones went out again (see
    /// is_untold). If the sink throws, the others stay.
    template <class Sink>
    void leave_open(Sink const& sink) {
        open_.drain(sink);
        if (reused_open_)
            sink(base::range{});
        reused_open_ = false;
    }

    /// In the host's set: keeps a block, or a `stock` that was lent, for 'settle'. Of its last use only `uses` is known.
    void strand(base::range block, base::growing_array<runtime::event> uses, bool stock = false) noexcept {
        keep_back(block, std::move(uses), false, stock);
    }

    /// Takes back a block that must not be handed out again.
    void lose(base::range block) noexcept { used_.lost_bytes += block.bytes; }
    /// Returns what was just lent or taken from covered bytes: from this set's, or from another's that no work uses. False:
    /// the host had no memory to keep a `stock`.
    bool put_back(base::range bytes, bool stock) noexcept {
        try {
            if (stock)
                receive(bytes, false);
            else
                cover(bytes);
            return true;
        } catch (...) {
            return false;
        }
    }

    /// Adds bytes that another set lent. `waited`: the stream waited for that set's event, then recorded its own. Throws
    /// std::bad_alloc before any change.
    void receive(base::range stock, bool waited) {
        covered_.add(stock);
        update_hint();
        arrivals_ += waited;
    }

    /// Rung 1 at its quickest: an open block of just that size, or an empty range.
    base::range take_recent(std::size_t bytes, std::size_t alignment) noexcept {
        base::range const block = open_.take(Placement::rounded(bytes, alignment), alignment);
        reused_open_ |= block.bytes != 0;
        arrivals_ += block.bytes != 0; // so that a settle under way leaves this set alone
        return block;
    }

    /// The same from the covered bytes. Throws std::bad_alloc.
    [[gnu::noinline]] base::range take_covered(std::size_t bytes, std::size_t alignment) {
        base::range const block = covered_.take(bytes, alignment);
        update_hint();
        return block;
    }

    /// Rung 1: bytes that this stream may have at once, among them those that no work uses; else an empty range. Throws
    /// cuda_error, std::bad_alloc.
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
        return this->older ? base::locked<stream_set>(*this->older)->take_covered(bytes, alignment) : base::range{};
    }

    /// Records the event, which turns open bytes into covered ones. False, with nothing changed, if it cannot be recorded:
    /// the stream is captured, its handle names another stream by now, or CUDA failed.
    [[gnu::noinline]] bool close(stream_ref stream) noexcept {
        try {
            if (runtime::is_capturing(stream))
                return false;
            // After that, since the id of a captured stream may not be asked for.
            if (!runtime::is_default_stream(stream) && Identity::id(stream) != id_)
                return false;
        } catch (...) {
            return false;
        }
        if (!(this->older ? make_way_and_record(stream) : safe_.try_record(stream)))
            return false;
        reused_open_ = false;
        cover_open();
        return true;
    }

    /// Whether the event was reached, so that any stream may have the covered bytes. Never blocks. Throws cuda_error.
    bool reached() { return safe_.reached(); }

    /// Looks for deferred blocks whose uses are over. Closed ones become covered; others become open, if `stream` is this
    /// set's own. With `wait`, `stream` is made to wait for uses that are not over. Answers whether any block moved. Never
    /// blocks. Throws cuda_error, std::bad_alloc.
    bool poll(stream_ref stream, bool wait = false) {
        if (deferred_.empty())
            return false;
        runtime::capture_mode_scope const relaxed;
        open_.reserve(deferred_.size());
        order::stream_answers answers = deferred_.ask();
        bool const any = deferred_.take_if([&](deferred_block const& each) {
            bool const over = each.is_over(answers);
            bool const covers = over && each.closed;
            if (!covers && (stream.is_host() || (!over && !wait)))
                return false;
            if (!over)
                each.make_wait(stream);
            if (covers)
                covered_.give(each.block);
            else
                hold(each.block);
            return true;
        });
        update_hint();
        return any;
    }

    /// The caller knows that all work on the set's device, and all uses in 'list_uses', were over when 'arrivals' got its
    /// present value: anyone may have every byte. Throws cuda_error, std::bad_alloc.
    void come_to_rest() {
        order::stream_answers answers = deferred_.ask();
        deferred_.take_if([&](deferred_block const& each) {
            bool const over = each.is_over(answers);
            if (over && each.stock)
                covered_.add(each.block);
            else if (over)
                covered_.give(each.block);
            return over;
        });
        cover_open();
        safe_.note_reached();
        reused_open_ = false;
    }

    /// The covered bytes, the event up to which they may be in use, and the deferred blocks. After a change call
    /// `update_hint`, and `arrived` if bytes in use came.
    Placement& covered() noexcept { return covered_; }
    safe_event& safe() noexcept { return safe_; }
    deferred_blocks& deferred() noexcept { return deferred_; }
    std::size_t free_bytes() const noexcept { return covered_.free_bytes(); }
    bool is_much() const noexcept { return free_bytes() >= Tuning::aside_bytes; }
    void arrived() noexcept { ++arrivals_; }
    void update_hint() noexcept { this->hint.update(covered_, deferred_.closed_bytes()); }

    /// The largest range of covered bytes; 0 if the placement does not tell.
    std::size_t largest_bytes() const noexcept {
        if constexpr (contract::holds<contract::has_largest, Placement>)
            return covered_.largest();
        return 0;
    }
    bool is_open() const noexcept { return !open_.empty(); }
    /// Bytes that become available to others only by a call on the stream itself, or by 'settle'.
    std::size_t open_bytes() const noexcept { return open_.bytes() + deferred_.open_bytes(); }
    /// Whether work that no event tells of may use bytes that are open or were: who took those may have freed them elsewhere.
    bool is_untold() const noexcept { return reused_open_ || open_bytes() != 0; }
    /// Whether no work uses a byte of this set or of its older generation. Never blocks. Throws cuda_error.
    bool is_at_rest() { return !is_untold() && rests_without_open(); }
    /// The same of all but the open bytes.
    bool rests_without_open() {
        return deferred_.empty() && reached() && (!this->older || base::locked<stream_set>(*this->older)->is_at_rest());
    }

    /// Counts how often bytes came here that may be in use, or open bytes went out.
    std::uint64_t arrivals() const noexcept { return arrivals_; }
    /// What was handed out of this set, what came back here, and what is lost.
    set_counts& used() noexcept { return used_; }

private:
    bool make_way_and_record(stream_ref stream) noexcept {
        safe_event const before = safe_;
        make_way(*this, patience_);
        if (safe_.try_record(stream))
            return true;
        safe_ = before; // what was lent may come back here, and be in use up to that event, which may have gone aside
        return false;
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
            hold(block); // safe: covered bytes may always wait as open ones
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
        } catch (...) { // no host memory: the rest stays open
        }
        update_hint();
    }

    open_blocks<Tuning> open_;
    deferred_blocks deferred_;
    Placement covered_;
    safe_event safe_;
    bool recorded_since_idle_ = false; // whether 'put' recorded an event since all blocks were back; else the last costs none
    bool reused_open_ = false; // whether open blocks were handed out again since the event was recorded
    unsigned long long id_ = 0;
    patience patience_;
    set_counts used_;
    std::uint64_t arrivals_ = 0;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
