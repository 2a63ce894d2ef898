// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How much does a stream keep for itself, and when do others get it?
//
// A struct of constants says so. Here is also the check of all three policies of reuse::stream_ordered: identity, handover and
// this one.
//
// invariant: read at compile time only.
// cost:      none.
// not for:   options at run time: see pool_options.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/contract/reuse_slot.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {

namespace reuse {

/// The constants of stream_ordered. To change one, derive from this struct and declare a member of the same name.
struct stream_ordered_tuning {
    /// How many blocks a stream keeps, found by size, before it records an event; 1 to 64. More: fewer events (148 ns each)
    /// in long runs of frees, but each block costs 17 bytes for every stream.
    static constexpr unsigned recent_blocks = 64;
    /// How many bytes a stream keeps in those blocks. More: allocating and freeing large blocks in turn stays cheap. Less:
    /// other streams can have freed memory sooner.
    static constexpr std::size_t recent_bytes = 4 * MiB;
    /// How many frees on a new stream record an event each before it keeps any such block. So a stream that lives only
    /// shortly leaves nothing behind that only 'settle' frees, and there may be many such streams. More: streams that live
    /// longer leave less behind, too. Less, down to 0: fewer events in programs whose streams live on.
    static constexpr unsigned young_frees = 8;
    /// How many bytes may be stranded before an allocation that finds nothing at hand waits for the device. Stranded bytes
    /// are those of which no event tells: what a stream kept when it or its thread ended (at most 'recent_bytes' of it), and
    /// what was freed where CUDA records no event, as in host functions. They come back in no other way. Each block counts as
    /// 16 KiB at least. More: fewer waits where streams come and go. Less: a smaller footprint there.
    static constexpr std::size_t stranded_bytes = 64 * MiB;
    /// Size in bytes from which on a block is searched among the free bytes of all streams, and not just of its own. Less: a
    /// smaller footprint with several streams. More: fewer queries for large blocks.
    static constexpr std::size_t gather_bytes = 8 * MiB;
    /// How many splinter bytes a stream may have before others take a few blocks of them rather than whole slabs. Splinters
    /// are the free bytes in slabs, each of which serves one size. Less: a smaller footprint where several streams hold small
    /// blocks. More: blocks that go from stream to stream cost less.
    static constexpr std::size_t splinter_bytes = 4 * MiB;
    /// How many bytes a stream that never rests must have freed before they are set aside, with an event of their own, if
    /// others want them (older_generation.hpp). Less: a smaller footprint where bytes go from stream to stream. More: fewer
    /// events and searches there.
    static constexpr std::size_t aside_bytes = 4 * MiB;
};

} // namespace reuse

namespace contract {

template <class Identity, class Stream>
using identifies =
    when<std::is_same_v<decltype(Identity::asks), bool const> &&
         std::is_convertible_v<decltype(Identity::id(std::declval<Stream>())), unsigned long long> &&
         std::is_void_v<decltype(Identity::require_no_capture(std::declval<Stream>()))>>;
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

/// Checks what fills the slots of reuse::stream_ordered.
template <class Identity, class Handover, class Tuning, class Stream>
constexpr bool require_stream_order() {
    static_assert(holds<identifies, Identity, Stream>,
                  "weir: the identity slot of reuse::stream_ordered needs 'static constexpr bool asks', 'static unsigned long "
                  "long id(stream_ref)' and 'static void require_no_capture(stream_ref)'; it comes first, use "
                  "'identity::checked' or 'identity::promised'");
    constexpr auto says = [](auto const& h)
        -> when<all_are<bool const, decltype(std::decay_t<decltype(h)>::waits_before_growing)>> {};
    static_assert(accepts<Handover>(says),
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
