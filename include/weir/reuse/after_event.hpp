// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may freed bytes be handed out again, if they should go to any stream without ever making one wait?
//
// Each free records an event on its stream; the bytes are anyone's once it has been reached. Streams need no
// memory of their own and little is kept of a stream but its pending frees, so this is the rule for pinned staging
// buffers that many short-lived streams share, and for pools where a free is rare. Freed bytes are not reused before
// the device has caught up, not even on their own stream.
//
// invariant: what the placement holds is in nobody's use; a pending block has at least one event.
// order:     an allocation on any stream, or on the host, comes after every use of its bytes.
// cost:      an event a free, and a lock three times; a miss asks about one free of each stream, or a few more
//            (pending_frees.hpp).
// not for:   hot loops on one stream: see 'stream_ordered'.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/order/stranded_blocks.hpp>
#include <weir/reuse/after_event/pending_frees.hpp>
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
    static constexpr bool waits_before_growing = false;

    template <class Placement>
    class over {
        static_assert(!contract::has_mark<Placement>,
                      "weir: reuse::after_event gives blocks back one by one, and blocks of an arena end together; use "
                      "'reuse::immediate' over it");

    public:
        /// The device of the streams does not matter.
        explicit over(int) noexcept {}
        over(over const&) = delete;
        over& operator=(over const&) = delete;

        /// A block that nobody uses any more, or an empty range. Never blocks on a device. Throws usage_error while `stream`
        /// is captured, cuda_error.
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

        /// As take, after waiting on the host for all that was freed. Throws cuda_error, usage_error, std::bad_alloc.
        base::range borrow(std::size_t bytes, std::size_t alignment, stream_ref stream) {
            wait();
            if (base::range const block = take(bytes, alignment, stream))
                return block;
            settle(); // also what no event tells of, for which a device is waited for
            return take(bytes, alignment, stream);
        }

        /// Takes back a block whose last use comes before this call in the order of `stream`. What a captured stream
        /// frees is not handed out again, since its graph may use it at each launch.
        void give(base::range block, stream_ref stream) noexcept {
            order::block_uses uses = second_.take(block.offset, stream);
            base::shared<reuse::detail::pending_free> last;
            unsigned long long id = reuse::detail::pending_frees::host;
            bool captured = false;
            bool known = stream.is_host();
            try {
                if (!known) {
                    captured = runtime::is_capturing(stream);
                    if (!captured) {
                        id = runtime::id_of(stream);
                        last = with_event(stream, id);
                        pending_.record(*last, stream);
                        known = true;
                    }
                } else if (!uses.events.empty()) {
                    last = base::shared<reuse::detail::pending_free>::make();
                }
            } catch (...) { // nothing is known of its last use
                known = false;
            }
            base::lock_guard<base::mutex> const lock(mutex_);
            used_.gave(block);
            used_.not_below_zero();
            try {
                if (uses.in_graph ||
                    (captured && !runtime::is_legacy(stream))) { // which is never captured itself, only in the way
                    used_.lost_bytes += block.bytes;
                } else if (!known || uses.untold) {
                    stranded_.add(block, any_device); // only 'settle' can tell when it is free
                } else if (!last) {
                    placement_.give(block);
                } else {
                    last->block = block;
                    last->uses = std::move(uses.events);
                    pending_.add(id, std::move(last));
                }
            } catch (...) {
                used_.lost_bytes += block.bytes;
            }
            if (pending_.size() >= look_at_)
                look();
        }

        /// Takes back a block of whose last use nothing is known: only 'settle' frees it.
        void strand(base::range block) noexcept {
            bool const in_graph = second_.take(block.offset, on_host).in_graph;
            base::lock_guard<base::mutex> const lock(mutex_);
            used_.gave(block);
            used_.not_below_zero();
            in_graph ? void(used_.lost_bytes += block.bytes) : keep(block);
        }

        void add(base::range chunk, stream_ref, bool joins = false) {
            base::lock_guard<base::mutex> const lock(mutex_);
            if constexpr (contract::fences<Placement>)
                if (!joins)
                    placement_.fence(chunk);
            placement_.add(chunk);
        }

        /// Calls visit(Placement&) for bytes that may be handed out, and that no work uses: the same here.
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

        /// Blocks until no work uses what was freed before; then anyone may have it. Throws cuda_error, std::bad_alloc.
        void settle() {
            std::uint64_t until = 0;
            bool any = false;
            {
                base::lock_guard<base::mutex> const lock(mutex_);
                until = stranded_.mark();
                any = stranded_.weight() != 0;
            }
            if (any)
                runtime::wait_for_device(any_device);
            wait();
            base::lock_guard<base::mutex> const lock(mutex_);
            stranded_.take_until(until, [this](base::range block) { placement_.give(block); });
        }
        /// The same where more is stranded than a pool should grow for. Blocks then. Throws as settle.
        void reclaim() {
            if (stranded_.weight() > most_stranded_bytes)
                settle();
        }

        /// Work on `stream` uses the block at `block.offset`: its free waits for all that is enqueued there until then. The
        /// stream lives until then, too.
        void used_on(base::range block, stream_ref stream) { second_.mark(block.offset, stream); }
        /// The same of the work before the present end of `stream` and no later work; the stream may end sooner.
        void last_used_on(base::range block, stream_ref stream) { second_.add(block.offset, stream); }

        base::usage used() const {
            base::lock_guard<base::mutex> const lock(mutex_);
            base::usage now = used_;
            now.unsettled_bytes = stranded_.bytes();
            if constexpr (contract::has_largest<Placement>)
                now.largest_free_bytes = placement_.largest();
            return now;
        }

    private:
        // With the lock held: gives the placement what is free by now, but for one block of exactly `bytes` bytes at a multiple
        // of `alignment`, which is the answer. Throws cuda_error, std::bad_alloc; with such a block the next one says what
        // failed.
        base::range poll(std::size_t bytes = 0, std::size_t alignment = 1) {
            base::range fitting;
            try {
                runtime::capture_mode_guard const relaxed;
                pending_.poll([&](base::shared<reuse::detail::pending_free>& free) {
                    if (!fitting && free->block.bytes == bytes && base::is_aligned(free->block.offset, alignment))
                        fitting = free->block;
                    else
                        placement_.give(free->block);
                    if (free->passed && waiters_ == 0)
                        recycle(free);
                });
            } catch (...) {
                if (!fitting)
                    throw;
            }
            return fitting;
        }

        // Blocks until what is pending now has been reached, and gives it to the placement. Holds no lock while it waits,
        // so that others go on; 'waiters_' keeps the events where they are meanwhile.
        void wait() {
            base::growing_array<base::shared<reuse::detail::pending_free>> now;
            {
                base::lock_guard<base::mutex> const lock(mutex_);
                pending_.for_each_last([&](base::shared<reuse::detail::pending_free> const& each) { now.push_back(each); });
                ++waiters_;
            }
            try {
                runtime::capture_mode_guard const relaxed;
                for (base::shared<reuse::detail::pending_free> const& each : now) {
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
        }

        // With the lock held.
        void keep(base::range block) noexcept {
            try {
                stranded_.add(block, any_device);
            } catch (...) {
                used_.lost_bytes += block.bytes;
            }
        }

        // Some frees: what is free by now must not pile up, nor be asked about at each.
        void look() noexcept {
            try {
                poll();
            } catch (...) { // the next allocation that needs these bytes says what failed
            }
            look_at_ = 2 * pending_.size() > fewest_pending ? 2 * pending_.size() : fewest_pending;
        }

        void recycle(base::shared<reuse::detail::pending_free>& free) noexcept {
            if (spare_.size() < spare_events)
                try {
                    free->uses.clear();
                    spare_.push_back(std::move(free));
                } catch (...) { // the event is destroyed instead
                }
        }

        // For a free on `stream`, whose id is `id`: with an event to record.
        base::shared<reuse::detail::pending_free> with_event(stream_ref stream, unsigned long long id) {
            base::shared<reuse::detail::pending_free> free;
            int device = any_device;
            {
                base::lock_guard<base::mutex> const lock(mutex_);
                device = pending_.device_of(id);
                if (device != any_device)
                    take_spare(device, free);
            }
            if (device == any_device) {
                device = runtime::device_of(stream);
                base::lock_guard<base::mutex> const lock(mutex_);
                take_spare(device, free);
            }
            if (!free) {
                free = base::shared<reuse::detail::pending_free>::make();
                free->passed = runtime::event(device);
                free->device = device;
            }
            return free;
        }

        // With the lock held.
        void take_spare(int device, base::shared<reuse::detail::pending_free>& free) noexcept {
            for (std::size_t i = spare_.size(); i-- > 0;)
                if (spare_[i]->device == device) {
                    base::swap_values(spare_[i], spare_.back());
                    free = std::move(spare_.back());
                    spare_.pop_back();
                    return;
                }
        }

        static constexpr std::size_t fewest_pending = 64; // frees after which a free looks at what is pending
        static constexpr std::size_t most_stranded_bytes = 64 * MiB; // before a pool that must grow waits for the device
        static constexpr std::size_t spare_events = 256; // kept for later frees; creating one takes microseconds

        mutable base::mutex mutex_;
        Placement placement_;
        reuse::detail::pending_frees pending_;
        std::size_t look_at_ = fewest_pending; // pending blocks; doubles while they are not reached
        order::stranded_blocks stranded_; // of whose last use nothing is known
        base::growing_array<base::shared<reuse::detail::pending_free>> spare_;
        unsigned waiters_ = 0; // threads that wait for events in pending_, or that were there
        order::second_uses second_;
        base::usage used_;
    };
};

} // namespace reuse
} // namespace v0
} // namespace weir
