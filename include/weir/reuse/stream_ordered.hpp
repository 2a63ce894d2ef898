// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may freed bytes be handed out again, if work on streams goes on after the call that freed them?
//
// Each stream has a set of free bytes (stream_set.hpp): what is freed on a stream goes into that stream's set. From time to
// time an event is recorded on the stream. Once the device has reached it, no work uses what was freed before. An allocation
// looks for bytes in up to five places, one after another, like somebody who climbs a ladder:
//   1. bytes freed on this stream: they may be used at once, with no event and no wait;
//   2. bytes freed on another stream, whose event has been reached: CUDA is asked, but nobody waits;
//   3. fresh bytes: the pool grows, within its limit;
//   4. bytes freed on another stream, whose event has not been reached: this stream is made to wait for it;
//   5. the host waits until the work in flight is done, and the pool tries again.
// The 'Handover' policy says whether rung 3 or rung 4 comes first.
//
// 'take' is rungs 1 and 2, 'borrow' is rung 4 and 'wait' is rung 5. Rung 3 is the pool's, which passes what it got to 'add'.
// Before it grows it calls 'gather', which brings all bytes that no work uses into one placement, where neighbours join into
// larger ranges.
//
// To settle is to wait until no work uses what was freed. Two kinds of blocks are outside the ladder. A stranded block is one
// of whose last use no event tells; only 'settle' frees it, by waiting for all work of the device. A lost block is handed out
// to nobody: a graph may use it at each launch, or CUDA did not say whether one does, or the host had no memory to note it.
// Once CUDA says that nothing is left of the graph, the block is stranded.
//
// invariant: bytes are in at most one set. What a set offers to its own stream is safe for that stream without a wait.
// order:     whoever takes bytes from another stream's set comes after that set's event. Either it was reached, or the
//            taker's stream was made to wait for it and then recorded its own event, so that the order travels on with the
//            bytes. Locks are taken in this order: 'moving_' (stream_exchange.hpp); the directory's; a set's; that of its
//            older generation (older_generation.hpp); that of the host's set; those of fences and second uses.
// cost:      rung 1: one table look-up, one spin lock, and what Identity asks of CUDA. From rung 2 on every set is visited.
// not for:   memory that no stream uses: see 'immediate'.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/reuse/handover.hpp>
#include <weir/reuse/identity.hpp>
#include <weir/reuse/stream_ordered/caller.hpp>
#include <weir/reuse/stream_ordered/set_figures.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/stream_ordered/stream_exchange.hpp>
#include <weir/reuse/tuning.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse {

template <class Identity, class Handover, class Tuning>
struct stream_ordered {
    static_assert(contract::require_stream_order<Identity, Handover, Tuning, stream_ref>());

    static constexpr bool thread_safe = true;
    static constexpr bool orders_streams = true;
    static constexpr bool streams_may_end = Identity::asks;
    static constexpr bool waits_before_growing = Handover::waits_before_growing;

    /// Whether it works over such a placement.
    template <class Placement>
    static constexpr bool fits = contract::holds<contract::has_absorb, Placement>;

    template <class Placement>
    class over {
        static_assert(contract::holds<contract::has_absorb, Placement>,
                      "weir: reuse::stream_ordered needs a placement whose free bytes can move between streams: "
                      "'void absorb(Placement&)' and 'range lend(std::size_t bytes, std::size_t alignment)'");
        using directory = reuse::detail::stream_directory<Placement, Identity, Tuning>;
        using set = typename directory::set;
        using caller = typename directory::caller;

    public:
        /// `device`: the device of all streams that allocate here; any_device: they may be of any.
        explicit over(int device) : sets_(device), several_devices_(runtime::may_have_several_devices()) {}

        /// The pool will hold at most `bytes` bytes from now on: the less that is, the less a new stream keeps for itself.
        void expect_at_most(std::size_t bytes) {
            std::size_t const share = bytes / 256 > 64 * KiB ? bytes / 256 : 64 * KiB;
            sets_.recent_bytes.store(share < Tuning::recent_bytes ? share : Tuning::recent_bytes, base::memory_order_relaxed);
            exchange_.expect_at_most(bytes, share);
            if constexpr (contract::holds<contract::has_is_small, Placement>)
                sets_.host()->covered().expect_at_most(bytes); // all sets' placements are its siblings
        }

        /// Rungs 1 and 2: a block that `stream` may use at once, or an empty range if there is none. Where the stream has no
        /// such block at hand, blocks in 'reclaim', and for room in a full queue. Throws usage_error, cuda_error,
        /// std::bad_alloc. Calls told(block, whether `stream` waits) for another's block, told({}, false) if it gathered.
        template <class Told = reuse::detail::nobody_told>
        base::range take(std::size_t bytes, std::size_t alignment, stream_ref stream, Told told = {}) {
            caller const who(stream);
            {
                auto const own = sets_.enter(who);
                base::range block = own->take_recent(bytes, alignment);
                if (!block && !exchange_.gathers_for(bytes, *own.get()))
                    block = own->take_covered(bytes, alignment);
                if (block) {
                    own->used().took(block);
                    return block;
                }
            }
            return take_slowly(bytes, alignment, who, false, told);
        }

        /// A block from the bytes that `stream` may use at once, at whatever cost to the placement: where memory is short,
        /// after 'gather'. Never blocks. Throws as take.
        template <class P = Placement, class = std::enable_if_t<contract::holds<contract::has_squeeze, P>>>
        base::range squeeze(std::size_t bytes, std::size_t alignment, stream_ref stream) {
            exchange_.note_shortage();
            auto const own = sets_.enter(caller(stream));
            base::range const block = own->covered().squeeze(bytes, alignment);
            own->update_hint();
            if (block)
                own->used().took(block);
            return block;
        }

        /// Rung 4: as take, but `stream` may be made to wait for the last use of the bytes. For the host this call blocks
        /// instead.
        template <class Told = reuse::detail::nobody_told>
        base::range borrow(std::size_t bytes, std::size_t alignment, stream_ref stream, Told told = {}) {
            if (stream.is_host())
                return wait(), take(bytes, alignment, stream, told);
            caller const who(stream);
            exchange_.recall(who);
            return take_slowly(bytes, alignment, who, true, told);
        }

        /// Takes back a block whose last use comes before this call in the order of `stream`; a free on the host promises
        /// that the last use is over. What a captured stream frees is handed out again only when nothing is left of its graph,
        /// which may use it at each launch. Waits at most for room in a full queue.
        void give(base::range block, stream_ref stream) noexcept {
            try {
                if (!uses_.any() && (Identity::asks && several_devices_
                                         ? give_asking(block, stream)
                                         : sets_.enter(caller::that_frees(stream))->give(block, stream)))
                    return;
            } catch (...) { // the stream has no set that can be used now
            }
            give_slowly(block, stream);
        }

        /// Takes back a block of whose last use nothing is known, but that no graph on the stream of its free uses it: only
        /// 'settle' frees it.
        void strand(base::range block) noexcept {
            order::block_uses uses = uses_.take(block.offset, on_host);
            if (uses.in_graph)
                sets_.lose(block, uses.graph);
            else
                strand(block, std::move(uses.events));
        }
        /// Takes back a block that a graph may use of which nothing is known: nobody gets it again.
        void lose(base::range block) noexcept {
            static_cast<void>(uses_.take(block.offset, on_host));
            sets_.lose(block, {});
        }

        /// Rung 3: adds fresh bytes to the set of `stream`. They may join with free bytes that were there before only if
        /// `joins`. Throws as take; then the bytes are not kept.
        void add(base::range chunk, stream_ref stream, bool joins = false) {
            auto const own = sets_.enter(caller(stream));
            if constexpr (contract::holds<contract::has_fence, Placement>)
                if (!joins)
                    own->covered().fence(chunk);
            own->covered().add(chunk);
            own->update_hint();
        }

        /// Calls visit(Placement&) for the bytes that `stream` may have at once. Throws as take, and what the visitor throws.
        template <class Visit>
        void visit_usable(stream_ref stream, Visit const& visit) {
            visit(sets_.enter(caller(stream))->covered());
        }
        /// Calls visit(Placement&) for the bytes that no work uses, set by set, until a call answers true. Sets that hold
        /// fewer than `least_bytes` are skipped. Throws cuda_error.
        template <class Visit>
        void visit_unused(Visit const& visit, std::size_t least_bytes = 1) {
            sets_.visit_unused(visit, least_bytes);
        }

        /// Brings all bytes that no work uses to the set of `stream`, where they join. With `grows` the pool will grow if
        /// that is not enough: then bytes that other streams still use are also prepared, so that they are free sooner the
        /// next time. Never blocks. Throws as take.
        void gather(stream_ref stream, bool grows = false) { exchange_.gather(caller(stream), grows); }

        /// Rung 5: blocks until every event recorded so far has been reached. The answer is whether any of them had not been
        /// reached before. Throws cuda_error.
        bool wait() { return exchange_.wait(); }

        /// Blocks until no work uses what was freed before the call; then any stream may have it. Throws cuda_error,
        /// std::bad_alloc.
        void settle() { exchange_.settle(); }

        /// Settles, and blocks for that, if more than Tuning::stranded_bytes are stranded, since nothing else frees those.
        /// Streams that are gone left them, or CUDA could record no event when they were freed.
        void reclaim() {
            if (sets_.stranded_bytes() > Tuning::stranded_bytes)
                exchange_.settle();
        }

        /// Says that work on `stream` uses the block at `block.offset`. The free of the block then waits for all that is
        /// enqueued on `stream` up to the free. The stream must live until then, too.
        void used_on(base::range block, stream_ref stream) { uses_.mark(block.offset, stream); }
        /// The same, but only the work that is on `stream` at this call uses the block, and no later work. The stream may end
        /// sooner.
        void last_used_on(base::range block, stream_ref stream) { uses_.add(block.offset, stream); }

        /// Bytes of which no event tells when others may have them. 'settle' makes them available to every stream.
        std::size_t unsettled_bytes() { return sets_.unsettled_bytes(); }

        /// Bytes and blocks in use, and the largest free range of any set.
        base::usage used() { return sets_.used(); }
        /// Calls see(base::stream_usage) for each stream, one after the other.
        template <class See>
        void visit_streams(See const& see) { reuse::detail::visit_streams(sets_, see); }

    private:
        // The part of 'take' for a stream that has no fitting block at hand. Not inlined, so that the usual path stays short.
        template <class Told>
        [[gnu::noinline]] base::range take_slowly(std::size_t bytes, std::size_t alignment, caller who, bool waits, Told told) {
            std::size_t const needed_bytes = Placement::rounded(bytes, alignment);
            if (needed_bytes == 0) // no block can be that large
                return base::range{};
            who = who.in_full(); // what follows may make the stream wait, or call the driver
            if (!Identity::asks && several_devices_ && !who.is_host())
                sets_.require_device(who.stream());
            set* mine = nullptr;
            bool gathers = false, waited = false;
            {
                auto const own = sets_.enter(who);
                mine = own.get();
                gathers = exchange_.gathers_for(bytes, *mine);
                if (!gathers)
                    if (base::range const block = take_of(*mine, bytes, alignment, who))
                        return block;
            }
            if (gathers) {
                exchange_.gather(who, false);
                told(base::range{}, false);
                auto const own = sets_.enter(who);
                if (base::range const block = take_of(*own.get(), bytes, alignment, who))
                    return block;
            }
            base::range const block = exchange_.take(mine, {who, bytes, alignment, needed_bytes, waits, &waited});
            if (block) {
                told(block, waited);
                reclaim_quietly(); // without a block the pool reclaims itself, once it knows that it can hold such a block
            }
            return block;
        }

        static base::range take_of(set& own, std::size_t bytes, std::size_t alignment, caller who) {
            base::range const block = own.take(bytes, alignment, who.stream());
            if (block)
                own.used().took(block);
            return block;
        }

        // For a pool that always finds enough in other streams' sets: it never has to grow, and so would never reclaim.
        void reclaim_quietly() noexcept {
            try {
                reclaim();
            } catch (...) { // the next allocation tries again
            }
        }

        [[gnu::noinline]] bool give_asking(base::range block, stream_ref stream) {
            return sets_.enter(caller(stream))->give(block, stream);
        }
        // Takes back a block that other streams use too, or whose stream has a handle that named another stream before.
        [[gnu::noinline]] void give_slowly(base::range block, stream_ref stream) noexcept {
            order::block_uses uses = uses_.take(block.offset, stream);
            try {
                auto const own = sets_.enter(caller(stream));
                if (uses.empty())
                    return give_verified(*own.get(), block, stream);
                if (uses.are_known() && own->defer(block, std::move(uses.events), stream))
                    return own->used().gave(block);
            } catch (...) {
            }
            give_unplaced(block, std::move(uses), stream);
        }

        // Takes back a block on a stream that lives and whose set is `own`. Where no event can be recorded, as in a host
        // function, the block stays open: it is this stream's until an event is recorded. Throws usage_error and cuda_error
        // before any change.
        static void give_verified(set& own, base::range block, stream_ref stream) {
            if (own.give(block, stream))
                return;
            weir::runtime::require_no_capture(stream);
            own.keep_open(block);
            own.used().gave(block);
        }

        void strand(base::range block, base::growing_array<runtime::event> uses) noexcept {
            if (uses.empty())
                return sets_.strand(block);
            auto const host = sets_.host();
            host->used().gave(block);
            host->strand(block, std::move(uses));
        }

        // Takes back a block that no set of its stream can take. Either the stream is captured, of another device or unknown
        // to CUDA, or the host has no memory; or another stream uses the block and nobody knows where that use ends. If it
        // can, this records an event for the block alone. If not, the block is stranded, or lost if a graph may use it.
        void give_unplaced(base::range block, order::block_uses uses, stream_ref stream) noexcept {
            runtime::capture_state const now = runtime::capture_state_of(stream);
            if (runtime::may_be_captured(now))
                uses.note_graph(runtime::capture_if_known(stream));
            if (uses.in_graph)
                return sets_.lose(block, uses.graph);
            if (now != runtime::capture_state::none || uses.untold || !end_with_event(uses.events, stream))
                return strand(block, std::move(uses.events));
            auto const host = sets_.host();
            host->used().gave(block);
            host->defer(block, std::move(uses.events), on_host);
        }

        // Adds an event at the present end of `stream`, which is not captured. False: CUDA failed, or there is no host memory.
        static bool end_with_event(base::growing_array<runtime::event>& events, stream_ref stream) noexcept {
            try {
                runtime::event passed(runtime::device_of(stream));
                passed.record(stream);
                events.push_back(std::move(passed));
                return true;
            } catch (...) {
                return false;
            }
        }

        directory sets_;
        reuse::detail::stream_exchange<Placement, Identity, Tuning> exchange_{sets_};
        bool several_devices_; // then CUDA gives one handle to streams of two devices (50 times of 50 on two H200)
        order::second_uses uses_;
    };
};

} // namespace reuse
} // namespace v0
} // namespace weir
