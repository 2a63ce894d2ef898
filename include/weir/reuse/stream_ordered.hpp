// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may freed bytes be handed out again, if work on streams goes on after the call that freed them?
//
// Bytes freed on a stream wait in that stream's set (stream_set.hpp). An allocation climbs a ladder:
//   1. bytes freed on this stream: at once, with no event and no wait;
//   2. bytes freed on another stream whose event has been reached: a query, never a wait;
//   3. fresh bytes: the pool grows, within its limit;                     } the order of 3 and 4 is the
//   4. bytes freed on another stream: this stream waits for its event;    } 'Handover' policy
//   5. the pool waits on the host for what is in flight, and tries again.
//
// Rungs 1 and 2 are 'take', 4 is 'borrow', 5 is 'wait'; 3 is the pool's, which 'add's what it got. Before it
// grows, 'gather' brings all bytes that anyone may have into one placement, where they join.
//
// invariant: bytes are in at most one set; a set's bytes are safe for its stream without a wait.
// order:     whoever takes bytes from another set is ordered after that set's event: it was reached, or the
//            taker's stream was made to wait and then recorded its own event, so that the order travels on.
//            Locks: 'moving_', then the directory's, then a set's, what is aside's, the host's, then those of fences and second
//            uses.
// cost:      a hit on rung 1: one table look-up, one spin lock, and what Identity asks; from rung 2 on, every set.
// not for:   memory that no stream uses: see 'immediate'.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/order/second_uses.hpp>
#include <weir/reuse/stream_ordered/identity.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/stream_ordered/stream_exchange.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/reuse/stream_ordered/tuning.hpp>
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
    static constexpr bool waits_before_growing = Handover::waits_before_growing;

    template <class Placement>
    class over {
        static_assert(contract::migrates<Placement>,
                      "weir: reuse::stream_ordered needs a placement whose free bytes can move between streams: "
                      "'void absorb(Placement&)' and 'range lend(std::size_t bytes, std::size_t alignment)'");
        using set = reuse::detail::stream_set<Placement, Identity, Tuning>;
        using directory = reuse::detail::stream_directory<set, Identity>;

    public:
        /// `device`: the device of streams that allocate; any_device: any.
        explicit over(int device)
            : sets_(device, set_maker{root_}), several_devices_(runtime::may_have_several_devices()) {}

        /// Rungs 1 and 2. An empty range: no. Never blocks, but to 'reclaim' where nothing is at hand. Throws usage_error,
        /// cuda_error, std::bad_alloc.
        base::range take(std::size_t bytes, std::size_t alignment, stream_ref stream) {
            Identity::require_no_capture(stream);
            {
                auto const own = enter(stream);
                base::range block = own->take_recent(bytes, alignment);
                if (!block && !exchange_.gathers_for(bytes, own.get()))
                    block = own->take_covered(bytes, alignment);
                if (block) {
                    own->used().took(block);
                    return block;
                }
            }
            return take_slowly(bytes, alignment, stream);
        }

        /// Rung 4: as take, of bytes whose last use `stream` is made to wait for. On the host it blocks.
        base::range borrow(std::size_t bytes, std::size_t alignment, stream_ref stream) {
            if (stream.is_host()) {
                wait();
                return take(bytes, alignment, stream);
            }
            exchange_.recall(stream);
            return take_slowly(bytes, alignment, stream, true);
        }

        /// Takes back bytes whose last use comes before this call in the order of `stream`, or, on the host, is
        /// over. What a captured stream frees is not handed out again, since its graph may use it at each launch.
        /// Never blocks on a device.
        void give(base::range block, stream_ref stream) noexcept {
            try {
                Identity::require_no_capture(stream);
                bool const asks = Identity::asks && several_devices_;
                if (!uses_.any() && (asks ? give_asking(block, stream) : enter(stream, false)->give(block, stream)))
                    return;
            } catch (...) { // the pool cannot use a set of the stream's
            }
            give_slowly(block, stream);
        }

        /// Takes back a block of whose last use nothing is known: only 'settle' frees it.
        void strand(base::range block) noexcept {
            order::block_uses uses = uses_.take(block.offset, on_host);
            uses.in_graph ? lose(block) : strand(block, std::move(uses.events));
        }

        /// Rung 3: fresh bytes, for `stream` first; `joins`: with free bytes before. Throws as take; then they are not kept.
        void add(base::range chunk, stream_ref stream, bool joins = false) {
            auto const own = enter(stream);
            if constexpr (contract::fences<Placement>)
                if (!joins)
                    own->covered().fence(chunk);
            own->covered().add(chunk);
            own->update_hint();
        }

        /// Calls visit(Placement&) for bytes that `stream` may have. Throws as take, and what the visitor throws.
        template <class Visit>
        void visit_usable(stream_ref stream, Visit const& visit) {
            visit(enter(stream)->covered());
        }
        /// The same for bytes that no work uses, `least_bytes` at least, until it answers true. Throws cuda_error.
        template <class Visit>
        void visit_unused(Visit const& visit, std::size_t least_bytes = 1) {
            sets_.visit_unused(visit, least_bytes);
        }

        /// Brings all bytes that anyone may have to `stream`, where they join. If the pool `grows` else, what others use is got
        /// ready for the next time. Never blocks. Throws as take.
        void gather(stream_ref stream, bool grows = false) { exchange_.gather(stream, grows); }

        /// Rung 5: blocks until every event recorded so far has been reached; whether any had not been. Throws cuda_error.
        bool wait() { return exchange_.wait(); }

        /// As stream_directory' settle: blocks until no work uses what was freed before the call, which anyone may have then.
        void settle() { exchange_.settle(); }

        /// The same where more than Tuning::stranded_bytes are stranded, which nothing else frees: streams that are gone left
        /// them, or CUDA answered nothing when they were freed.
        void reclaim() {
            if (sets_.stranded_bytes() > Tuning::stranded_bytes)
                exchange_.settle();
        }

        /// Work on `stream` uses the block at `block.offset`: its free waits for all that is enqueued there until then. The
        /// stream lives until then, too.
        void used_on(base::range block, stream_ref stream) { uses_.mark(block.offset, stream); }
        /// The same of the work before the present end of `stream` and no later work; the stream may end sooner.
        void last_used_on(base::range block, stream_ref stream) { uses_.add(block.offset, stream); }

        /// Bytes that no event makes anyone's, but 'settle' does.
        std::size_t unsettled_bytes() { return sets_.unsettled_bytes(); }

        /// What is handed out, and the largest free range of any set.
        base::usage used() { return sets_.used(); }

    private:
        struct set_maker {
            Placement const& root;
            set* operator()() const {
                if constexpr (contract::has_sibling<Placement>)
                    return new set(root.sibling());
                else
                    return new set(Placement());
            }
        };
        [[gnu::always_inline]] typename directory::locked enter(stream_ref stream, bool verify = true) {
            return sets_.enter(stream, verify, set_maker{root_});
        }

        // Where the stream has no such block at hand. Not inlined, so that the usual path stays short.
        [[gnu::noinline]] base::range take_slowly(std::size_t bytes, std::size_t alignment, stream_ref stream,
                                                  bool wait = false) {
            if (Placement::rounded(bytes, alignment) == 0)
                return base::range{}; // more than a block can have
            if constexpr (!Identity::asks) { // what follows may make the stream wait, or call the driver
                weir::runtime::require_no_capture(stream);
                if (several_devices_ && !stream.is_host())
                    sets_.require_device(stream);
            }
            set* mine = nullptr;
            bool const gathers = [&] {
                auto const own = enter(stream);
                return exchange_.gathers_for(bytes, mine = own.get());
            }();
            if (gathers)
                gather(stream);
            {
                auto const own = enter(stream);
                if (base::range const block = own->take(bytes, alignment, stream)) {
                    own->used().took(block);
                    return block;
                }
            }
            base::range const block =
                exchange_.take(mine, bytes, alignment, Placement::rounded(bytes, alignment), stream, wait);
            if (block)
                reclaim_quietly(); // else the pool asks, once it knows that it can hold such a block
            return block;
        }

        // What others left is always enough here, so the pool never has to grow.
        void reclaim_quietly() noexcept {
            try {
                reclaim();
            } catch (...) { // the next one tries again
            }
        }

        [[gnu::noinline]] bool give_asking(base::range block, stream_ref stream) { return enter(stream)->give(block, stream); }
        // Takes back a block that other streams use, or whose stream's handle was another's before.
        [[gnu::noinline]] void give_slowly(base::range block, stream_ref stream) noexcept {
            order::block_uses uses = uses_.take(block.offset, stream);
            try {
                Identity::require_no_capture(stream);
                auto const own = enter(stream);
                if (uses.empty()) {
                    if (give_verified(*own.get(), block, stream))
                        return;
                } else if (uses.are_known() && own->defer(block, std::move(uses.events), stream)) {
                    return own->used().gave(block);
                }
            } catch (...) {
            }
            give_unplaced(block, std::move(uses), stream);
        }

        // Where no event can be recorded, as in a host function, the block is the stream's until there is one: 'own' is the set
        // of a stream that lives. But a thread may end without a word: false. Throws usage_error, cuda_error before any change.
        static bool give_verified(set& own, base::range block, stream_ref stream) {
            if (own.give(block, stream))
                return true;
            weir::runtime::require_no_capture(stream);
            if (runtime::is_per_thread(stream))
                return false;
            own.keep_open(block);
            own.used().gave(block);
            return true;
        }

        void lose(base::range block) noexcept {
            auto const settled = sets_.settled();
            settled->used().gave(block);
            settled->lose(block);
        }

        void strand(base::range block, base::growing_array<runtime::event> uses) noexcept {
            if (uses.empty())
                return sets_.strand(block);
            auto const settled = sets_.settled();
            settled->used().gave(block);
            settled->strand(block, std::move(uses));
        }

        // Takes back a block whose stream has no set that may be used now: it is captured, of another device or unknown to
        // CUDA, or the host has no memory; or one that another stream uses whose end nobody knows. An event of its own stands
        // for the block where it can; else only 'settle' frees it.
        void give_unplaced(base::range block, order::block_uses uses, stream_ref stream) noexcept {
            bool captured = uses.in_graph;
            bool placed = false;
            try {
                if (runtime::is_capturing(stream)) {
                    captured |= !runtime::is_legacy(stream); // which is never captured itself, only in the way
                } else if (uses.are_known()) {
                    runtime::event passed(runtime::device_of(stream));
                    passed.record(stream);
                    uses.events.push_back(std::move(passed));
                    placed = true;
                }
            } catch (...) { // nothing is known of its last use
            }
            if (captured)
                return lose(block);
            if (!placed)
                return strand(block, std::move(uses.events));
            auto const settled = sets_.settled();
            settled->used().gave(block);
            settled->defer(block, std::move(uses.events), on_host);
        }

        Placement root_; // holds nothing; what the sets' placements are siblings of
        directory sets_;
        reuse::detail::stream_exchange<set, Identity, Tuning, set_maker> exchange_{sets_, set_maker{root_}};
        bool several_devices_; // handles come again on other devices (50 times of 50 on two H200)
        order::second_uses uses_;
    };
};

} // namespace reuse
} // namespace v0
} // namespace weir
