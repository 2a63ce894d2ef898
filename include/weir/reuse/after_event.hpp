// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may freed bytes be handed out again, if any stream may take them and no stream is ever made to wait?
//
// Each free records an event on its stream. Once the event has been reached, anyone may have the bytes. Streams need no
// memory of their own, and little is kept of a stream except its pending frees, those whose event has not been reached yet.
// So this is the rule for pinned staging buffers that many short-lived streams share, and for pools in which frees are rare.
// Freed bytes are not reused before the device has caught up, not even on their own stream.
//
// invariant: no work uses what the placement holds. A pending block has at least one event.
// order:     an allocation, on any stream or on the host, comes after every use of its bytes.
// cost:      a free: one event, and a lock taken three times. An allocation that misses asks about one free of each stream,
//            or a few more (pending_frees.hpp).
// not for:   hot loops on one stream: see 'stream_ordered'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/order/stranded_blocks.hpp>
#include <weir/reuse/after_event/pending_frees.hpp>
#include <weir/reuse/after_event/spare_frees.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace reuse {

/// Any thread may call any member of 'over'.
struct after_event {
    static constexpr bool thread_safe = true;
    static constexpr bool orders_streams = true;
    static constexpr bool streams_may_end = true;
    static constexpr bool waits_before_growing = false;

    /// Whether it works over such a placement.
    template <class Placement>
    static constexpr bool fits = !contract::holds<contract::has_mark, Placement, base::usage>;

    template <class Placement>
    class over {
        static_assert(!contract::holds<contract::has_mark, Placement, base::usage>,
                      "weir: reuse::after_event gives blocks back one by one, and blocks of an arena end together; use "
                      "'reuse::immediate' over it");

    public:
        /// The device of the streams does not matter.
        explicit over(int) noexcept {}
        over(over const&) = delete;
        over& operator=(over const&) = delete;

        /// A block that no work uses, or an empty range. Never blocks on a device. Throws usage_error while `stream` is
        /// captured, cuda_error.
        base::range take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
            runtime::require_no_capture(stream);
            base::lock_guard<base::mutex> const lock(mutex_);
            base::range block = placement_.take(bytes, alignment);
            if (!block && !pending_.empty()) {
                block = poll(Placement::rounded(bytes, alignment), alignment);
                if (!block)
                    block = placement_.take(bytes, alignment);
            }
            if (block)
                used_.took(block);
            return block;
        }

        /// As take, at whatever cost to the placement: where memory is short. Asks about no free.
        template <class P = Placement, class = std::enable_if_t<contract::holds<contract::has_squeeze, P>>>
        base::range squeeze(std::size_t bytes, std::size_t alignment, stream_ref) {
            base::lock_guard<base::mutex> const lock(mutex_);
            base::range const block = placement_.squeeze(bytes, alignment);
            if (block)
                used_.took(block);
            return block;
        }

        /// Blocks until the events that are pending at the call were reached; then anyone may have those blocks. True if there
        /// were any. Throws cuda_error, std::bad_alloc.
        bool wait() {
            base::growing_array<base::shared<reuse::detail::pending_free>> now;
            {
                base::lock_guard<base::mutex> const lock(mutex_);
                pending_.for_each_last([&](base::shared<reuse::detail::pending_free> const& each) { now.push_back(each); });
                ++waiters_; // meanwhile nobody records these events again
            }
            try {
                runtime::capture_mode_scope const relaxed;
                for (base::shared<reuse::detail::pending_free> const& each : now) { // without the lock, so that others go on
                    if (each->passed)
                        each->passed.synchronize();
                    for (runtime::event const& use : each->uses)
                        use.synchronize();
                }
            } catch (...) {
                base::lock_guard<base::mutex> const lock(mutex_);
                --waiters_;
                throw;
            }
            base::lock_guard<base::mutex> const lock(mutex_);
            --waiters_;
            poll();
            return !now.empty();
        }

        /// Bytes of which no event tells when others may have them. 'settle' makes them available.
        std::size_t unsettled_bytes() { return used().unsettled_bytes; }

        /// Takes back a block whose last use comes before this call in the order of `stream`. What a captured stream frees is
        /// handed out again only when nothing is left of its graph, which may use it at each launch. Waits at most for room in
        /// a full queue.
        void give(base::range block, stream_ref stream) noexcept {
            order::block_uses uses = second_.take(block.offset, stream);
            runtime::capture_state const now = runtime::capture_state_of(stream);
            if (runtime::may_be_captured(now))
                uses.note_graph(runtime::capture_if_known(stream));
            base::shared<reuse::detail::pending_free> last;
            bool const known =
                now == runtime::capture_state::none && uses.are_known() && end_with_event(last, !uses.events.empty(), stream);
            base::lock_guard<base::mutex> const lock(mutex_);
            gave(block);
            try {
                if (!known) {
                    keep(block, uses);
                } else if (!last) {
                    placement_.give(block);
                } else {
                    last->block = block;
                    last->uses = std::move(uses.events);
                    pending_.add(std::move(last));
                }
            } catch (...) {
                used_.lost_bytes += block.bytes;
            }
            if (pending_.size() >= look_at_)
                look();
        }

        /// Takes back a block of whose last use nothing is known, but that no graph on the stream of its free uses it: it is
        /// stranded, and only 'settle' frees it.
        void strand(base::range block) noexcept {
            order::block_uses const uses = second_.take(block.offset, on_host);
            base::lock_guard<base::mutex> const lock(mutex_);
            gave(block);
            keep(block, uses);
        }
        /// Takes back a block that a graph may use of which nothing is known: nobody gets it again.
        void lose(base::range block) noexcept {
            static_cast<void>(second_.take(block.offset, on_host));
            base::lock_guard<base::mutex> const lock(mutex_);
            gave(block);
            used_.lost_bytes += block.bytes;
        }

        void add(base::range chunk, stream_ref, bool joins = false) {
            base::lock_guard<base::mutex> const lock(mutex_);
            if constexpr (contract::holds<contract::has_fence, Placement>)
                if (!joins)
                    placement_.fence(chunk);
            placement_.add(chunk);
        }

        /// Calls visit(Placement&) for the bytes that may be handed out. Here these are the same as those that no work uses.
        template <class Visit>
        void visit_usable(stream_ref, Visit const& visit) {
            visit_unused(visit);
        }
        template <class Visit>
        void visit_unused(Visit const& visit, std::size_t = 1) {
            base::lock_guard<base::mutex> const lock(mutex_);
            poll();
            visit(placement_);
        }

        /// Blocks until no work uses what was freed before the call; then anyone may have it. Throws cuda_error,
        /// std::bad_alloc.
        void settle() {
            std::uint64_t until = 0;
            bool any = false;
            {
                base::lock_guard<base::mutex> const lock(mutex_);
                stranded_.look_at_graphs();
                until = stranded_.mark();
                any = stranded_.weight() != 0;
            }
            if (any)
                runtime::wait_for_device(any_device);
            wait();
            base::lock_guard<base::mutex> const lock(mutex_);
            stranded_.take_until(until, [this](base::range block) { placement_.give(block); });
        }
        /// Settles if so much is stranded that a pool should not grow before it has that back; blocks then. Throws as settle.
        void reclaim() {
            if (stranded_.graph_bytes() != 0) {
                base::lock_guard<base::mutex> const lock(mutex_);
                stranded_.look_at_graphs();
            }
            if (stranded_.weight() > most_stranded_bytes)
                settle();
        }

        /// Says that work on `stream` uses the block at `block.offset`. The free of the block then waits for all that is
        /// enqueued on `stream` up to the free. The stream must live until then, too.
        void used_on(base::range block, stream_ref stream) { second_.mark(block.offset, stream); }
        /// The same, but only the work that is on `stream` at this call uses the block, and no later work. The stream may end
        /// sooner.
        void last_used_on(base::range block, stream_ref stream) { second_.add(block.offset, stream); }

        base::usage used() const {
            base::lock_guard<base::mutex> const lock(mutex_);
            stranded_.look_at_graphs();
            base::usage now = used_;
            now.lost_bytes += stranded_.graph_bytes();
            now.unsettled_bytes = stranded_.bytes();
            if constexpr (contract::holds<contract::has_largest, Placement>)
                now.largest_free_bytes = placement_.largest();
            return now;
        }

    private:
        // Needs the lock. Gives the placement all blocks that are free by now, except for one of exactly `bytes` bytes at a
        // multiple of `alignment`, if there is one: that is the answer. Throws cuda_error, std::bad_alloc; but if it has
        // found such a block it returns it, and the next call meets the failure.
        base::range poll(std::size_t bytes = 0, std::size_t alignment = 1) {
            base::range fitting;
            try {
                runtime::capture_mode_scope const relaxed;
                pending_.poll([&](base::shared<reuse::detail::pending_free>& free) {
                    if (!fitting && free->block.bytes == bytes && base::is_aligned(free->block.offset, alignment))
                        fitting = free->block;
                    else
                        placement_.give(free->block);
                    if (free->passed && waiters_ == 0)
                        spare_.keep(free);
                });
            } catch (...) {
                if (!fitting)
                    throw;
            }
            return fitting;
        }

        // Needs the lock.
        void gave(base::range block) noexcept {
            used_.gave(block);
            used_.not_below_zero();
        }

        // Needs the lock. Keeps a block of whose last use no event tells: only 'settle' can tell when it is free, and if a
        // graph may use it, not before nothing is left of that graph.
        void keep(base::range block, order::block_uses const& uses) noexcept {
            if (!base::try_twice([&] {
                    return uses.in_graph ? stranded_.add_for_graph(block, uses.graph)
                                         : (stranded_.add(block, any_device), true);
                }))
                used_.lost_bytes += block.bytes;
        }

        // Records the event of a free on `stream`, which is not captured. The host's frees need none, but an entry if the block
        // `has_uses`. False: CUDA failed, or there is no host memory.
        bool end_with_event(base::shared<reuse::detail::pending_free>& last, bool has_uses, stream_ref stream) noexcept {
            try {
                if (stream.is_host()) {
                    if (has_uses)
                        last = base::shared<reuse::detail::pending_free>::make();
                    return true;
                }
                unsigned long long const id = runtime::id_of(stream);
                last = with_event(stream, id);
                pending_.record(*last, stream, id);
                return true;
            } catch (...) {
                return false;
            }
        }

        // Called after a number of frees: blocks that are free must not pile up, but asking at each free would cost too much.
        // So the number is twice that of the blocks that are still pending.
        void look() noexcept {
            try {
                poll();
            } catch (...) { // the next allocation that needs these bytes says what failed
            }
            look_at_ = 2 * pending_.size() > fewest_pending ? 2 * pending_.size() : fewest_pending;
        }

        // An entry for a free on `stream`, whose id is `id`, with an event that is not recorded yet.
        base::shared<reuse::detail::pending_free> with_event(stream_ref stream, unsigned long long id) {
            base::shared<reuse::detail::pending_free> free;
            int device = any_device;
            {
                base::lock_guard<base::mutex> const lock(mutex_);
                device = pending_.device_of(id);
                if (device != any_device)
                    spare_.take(device, free);
            }
            if (device == any_device) {
                device = runtime::device_of(stream);
                base::lock_guard<base::mutex> const lock(mutex_);
                spare_.take(device, free);
            }
            if (!free) {
                free = base::shared<reuse::detail::pending_free>::make();
                free->passed = runtime::event(device);
                free->device = device;
            }
            return free;
        }

        static constexpr std::size_t fewest_pending = 64; // pending blocks from which on a free asks about them
        // Beyond so many stranded bytes, a pool that must grow waits for the device first.
        static constexpr std::size_t most_stranded_bytes = 64 * MiB;

        mutable base::mutex mutex_;
        Placement placement_;
        reuse::detail::pending_frees pending_;
        std::size_t look_at_ = fewest_pending; // at so many pending blocks a free asks about them; see look
        mutable order::stranded_blocks stranded_; // blocks of whose last use nothing is known
        reuse::detail::spare_frees spare_;
        unsigned waiters_ = 0; // threads that wait for events which are, or were, in pending_
        order::second_uses second_;
        base::usage used_;
    };
};

} // namespace reuse
} // namespace v0
} // namespace weir
