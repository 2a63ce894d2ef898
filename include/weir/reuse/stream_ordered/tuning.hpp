// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a program choose about stream order, beside the identity of streams?
//
// Which of two rungs of the ladder in reuse/stream_ordered.hpp comes first, as a policy, and how much a stream keeps
// for itself, as a struct of constants.
//
// invariant: both are read at compile time only.
// cost:      none.
// not for:   run-time options: see pool_options.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {

namespace handover {
/// Rung 3 before 4: streams stay independent of one another, at the price of more memory.
struct grow_first {
    static constexpr bool waits_before_growing = false;
};
/// Rung 4 before 3: the smallest footprint, at the price of streams that wait for one another.
struct wait_first {
    static constexpr bool waits_before_growing = true;
};
} // namespace handover

namespace reuse {

/// The constants of stream_ordered. Derive and hide a member to change it.
struct stream_ordered_tuning {
    /// Blocks that a stream keeps, found by size, before it records an event; 1 to 64. More: fewer events (148 ns
    /// each) on long runs of frees; each costs 17 bytes a stream.
    static constexpr unsigned recent_blocks = 64;
    /// Bytes that a stream keeps so. More: large pairs stay cheap; less: other streams see freed memory sooner.
    static constexpr std::size_t recent_bytes = 4 * MiB;
    /// Frees on a stream that record an event each before it keeps any block so: a stream that lives shortly, of which
    /// there may be many, leaves nothing behind that only 'settle' frees. More: less is left by longer lives; less, down
    /// to 0: fewer events in programs whose streams live on.
    static constexpr unsigned young_frees = 8;
    /// Bytes that may be stranded, without an event, before an allocation that finds nothing at hand waits for the device:
    /// what a stream kept when it was destroyed, at most 'recent_bytes' of it, and what CUDA could not record, as in host
    /// functions. Each block counts as 16 KiB at least. They come back in no other way. More: fewer waits where streams come
    /// and go; less: a smaller footprint there.
    static constexpr std::size_t stranded_bytes = 64 * MiB;
    /// Bytes from which on a block is placed with a view of all that any stream may have, and not just of its own
    /// stream's. Less: a smaller footprint with several streams; more: fewer queries for large blocks.
    static constexpr std::size_t gather_bytes = 8 * MiB;
    /// Bytes that may lie free in a stream's slabs before others take a few blocks of those rather than whole slabs. Less: a
    /// smaller footprint where several streams hold small blocks; more: blocks that go from stream to stream cost less.
    static constexpr std::size_t splinter_bytes = 4 * MiB;
    /// Bytes from which on what a stream that never rests has freed is set aside with an event of its own where others want it.
    /// Less: a smaller footprint where bytes go from stream to stream; more: fewer events and searches there.
    static constexpr std::size_t aside_bytes = 4 * MiB;
};

} // namespace reuse

namespace contract {

template <class Identity, class Stream>
using identifies =
    when<is_constant_bool<decltype(Identity::asks)> &&
         std::is_convertible_v<decltype(Identity::id(std::declval<Stream>())), unsigned long long> &&
         std::is_void_v<decltype(Identity::require_no_capture(std::declval<Stream>()))>>;
template <class H>
using hands_over = when<is_constant_bool<decltype(H::waits_before_growing)>>;
template <auto>
struct constant {};
template <class T>
using tunes_streams = decltype(constant<static_cast<unsigned>(T::recent_blocks)>(),
                               constant<static_cast<unsigned>(T::young_frees)>(),
                               constant<static_cast<std::size_t>(T::recent_bytes)>(),
                               constant<static_cast<std::size_t>(T::stranded_bytes)>(),
                               constant<static_cast<std::size_t>(T::gather_bytes)>(),
                               constant<static_cast<std::size_t>(T::splinter_bytes)>(),
                               constant<static_cast<std::size_t>(T::aside_bytes)>());

/// The slots of reuse::stream_ordered.
template <class Identity, class Handover, class Tuning, class Stream>
constexpr bool require_stream_order() {
    static_assert(holds<identifies, Identity, Stream>,
                  "weir: the identity slot of reuse::stream_ordered needs 'static constexpr bool asks', 'static unsigned long "
                  "long id(stream_ref)' and 'static void require_no_capture(stream_ref)'; it comes first, use "
                  "'identity::checked' or 'identity::promised'");
    static_assert(holds<hands_over, Handover>,
                  "weir: the handover slot of reuse::stream_ordered needs 'static constexpr bool waits_before_growing'; use "
                  "'handover::grow_first' or 'handover::wait_first'");
    static_assert(holds<tunes_streams, Tuning>,
                  "weir: the tuning slot of reuse::stream_ordered lacks a 'static constexpr' number; derive from "
                  "'reuse::stream_ordered_tuning' and hide what is to be otherwise");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
