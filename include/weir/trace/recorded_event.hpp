// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is written down of one thing that happened to a pool?
//
// An event has a time, the thread and the stream that it is about, an address and a number of bytes. What address and bytes
// mean depends on the kind of event, which the list below says. Names (of call sites, scopes and pools) are numbers in an
// event: trace/name_table.hpp knows the texts.
//
// invariant: 48 bytes, without padding; all zeros is no event.
// cost:      none; a plain struct.
// not for:   what an event looks like in a file, where it takes some 7 bytes: see trace/event_encoder.hpp.

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace trace {

/// What happened. The numbers stand in files: a new kind takes the next one.
enum class event_kind : std::uint8_t {
    none = 0,
    // Seen by layer::record, about a block. `bytes` is what was asked for, `address` the block's.
    allocate = 1,     ///< a block was handed out
    free = 2,         ///< a block is about to go back; written before the pool sees it
    refuse = 3,       ///< there was no room; the address is 0
    used_on = 4,      ///< work on `stream` uses the block, up to its free
    last_used_on = 5, ///< the same, but only work that is enqueued there so far
    // Seen by layer::record, about the pool or a stream.
    mark = 6,         ///< `bytes`: the mark's number
    rewind = 7,       ///< blocks after the mark end; `bytes`: the mark's number
    clear = 8,        ///< all blocks end
    stream_ends = 9,  ///< before_destroy was called; the handle may soon name another stream
    settle = 10,     ///< the host waited until no work used what was freed
    trim = 11,       ///< `bytes`: to be kept
    reserve = 12,    ///< `bytes`: to be held
    set_limit = 13,  ///< `bytes`: the new limit
    suspend = 14,    ///< `bytes`: given back
    resume = 15,     ///< all is back at its address
    // Seen by the slots of a pool (upstream::recorded, reuse::recorded). `address` and `bytes` are those of a chunk, or of the
    // block that changed streams.
    grow = 16,       ///< the upstream handed out a chunk
    extend = 17,     ///< it added memory at `address`, right behind a chunk
    move_from = 18,  ///< it took the memory of a free chunk away from `address`, and at once
    move_to = 19,    ///< put it there
    give_back = 20,  ///< it took a chunk back
    withdraw = 21,   ///< it took a chunk's memory, but not its addresses
    restore = 22,    ///< it put memory there again
    hand_over = 23,  ///< `stream` got a block of another stream's free memory (order_of: whether it has to wait for that one's
                     ///< work); address 0: it got all memory that no work used
    wait = 24,       ///< the host waited for work before the pool went on; `bytes`: for how many ticks
    // Written by the program.
    begin_scope = 25, ///< `site`: the scope's name
    end_scope = 26
};
/// One more than the last kind.
inline constexpr unsigned event_kinds = 27;

/// What a stream that got another one's free memory has to wait for.
enum class hand_over_order : std::uint8_t {
    not_known = 0, ///< a recording of a weir that did not tell
    none = 1,      ///< nothing: no work used it any more
    wait = 2       ///< the work that was on the other stream at the free
};

/// One thing that happened.
struct event {
    std::uint64_t ticks = 0;   ///< when: see trace/clock.hpp
    std::uint64_t address = 0; ///< of the block or chunk
    std::uint64_t bytes = 0;   ///< asked for
    std::uint64_t stream = 0;  ///< CUDA's handle; 0: the host
    std::uint32_t extra_bytes = 0; ///< what the pool added to `bytes`; unknown_extra: it did not say, or more than 4 GiB
    std::uint32_t site = 0;        ///< which call, or which scope: a number of the name_table; 0: not known
    std::uint32_t thread = 0;      ///< a number that no other running thread has
    std::uint16_t source = 0;      ///< which pool: a number of the recorder
    event_kind kind = event_kind::none;
    std::uint8_t log2_alignment = 0; ///< of a block; of a hand_over its hand_over_order
};
static_assert(sizeof(event) == 48);

/// Of a hand_over.
constexpr hand_over_order order_of(event const& one) noexcept {
    return one.log2_alignment <= 2 ? static_cast<hand_over_order>(one.log2_alignment) : hand_over_order::not_known;
}

inline constexpr std::uint32_t unknown_extra = UINT32_MAX;

} // namespace trace
} // namespace v0
} // namespace weir
