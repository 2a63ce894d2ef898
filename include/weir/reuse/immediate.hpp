// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When may freed bytes be handed out again, if nothing asynchronous uses them?
//
// At once. By freeing a block the caller says that every use of it is over; streams are not looked at. This is the rule for
// host memory, for arenas that are rewound when a frame is done, and for programs that synchronise anyway.
//
// invariant: what the placement holds is free.
// order:     none. The stream argument is ignored.
// cost:      that of the placement. For each chunk that is unmapped (in a trim, a move, or at the pool's end) a wait for all
//            work on every device in use (runtime/wait.hpp).
// not for:   memory that work may still use on another stream than the next user's: see 'stream_ordered'. Nor for several
//            threads: see layer::synchronized.

#include <cstddef>
#include <type_traits>
#include <weir/base/range.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse {

/// One thread at a time.
struct immediate {
    static constexpr bool thread_safe = false;
    static constexpr bool orders_streams = false;
    static constexpr bool streams_may_end = true;
    static constexpr bool waits_before_growing = false;

    template <class Placement>
    class over {
    public:
        explicit over(int) {}
        over(over const&) = delete;
        over& operator=(over const&) = delete;

        /// A block, or an empty range. Never blocks.
        base::range take(std::size_t bytes, std::size_t alignment, stream_ref) {
            base::range const block = placement_.take(bytes, alignment);
            if (block)
                used_.took(block);
            return block;
        }

        /// As take, at whatever cost to the placement: where memory is short.
        template <class P = Placement, class = std::enable_if_t<contract::holds<contract::has_squeeze, P>>>
        base::range squeeze(std::size_t bytes, std::size_t alignment, stream_ref) {
            base::range const block = placement_.squeeze(bytes, alignment);
            if (block)
                used_.took(block);
            return block;
        }

        /// Takes a block back; it may be handed out by the next call.
        void give(base::range block, stream_ref) noexcept {
            used_.gave(block);
            used_.not_below_zero();
            try {
                placement_.give(block);
            } catch (...) {
                used_.lost_bytes += block.bytes;
            }
        }

        void add(base::range chunk, stream_ref, bool joins = false) {
            if constexpr (contract::holds<contract::has_fence, Placement>)
                if (!joins)
                    placement_.fence(chunk);
            placement_.add(chunk);
        }

        /// Calls visit(Placement&) for the bytes that may be handed out: all that are free. Work may still use them. So
        /// whatever takes their memory away waits first: cudaFree does, and so does an upstream that was told to.
        template <class Visit>
        void visit_usable(stream_ref, Visit const& visit) {
            visit(placement_);
        }
        template <class Visit>
        void visit_unused(Visit const& visit, std::size_t = 1) {
            visit(placement_);
        }

        /// Does nothing: what was freed is in no use, as the caller said.
        void settle() noexcept {}

        base::usage used() const noexcept {
            base::usage now = used_;
            if constexpr (contract::holds<contract::has_largest, Placement>)
                now.largest_free_bytes = placement_.largest();
            return now;
        }

        /// For marks and 'clear', which end many blocks at once.
        Placement& placement() noexcept { return placement_; }
        base::usage& counts() noexcept { return used_; }

    private:
        Placement placement_;
        base::usage used_;
    };
};

} // namespace reuse
} // namespace v0
} // namespace weir
