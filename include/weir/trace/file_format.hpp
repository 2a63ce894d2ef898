// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does weir's own file of events look like?
//
// It begins with 'file_mark' and the version, 12 bytes in all. Segments follow, each with a head of 16 bytes: 'segment_mark',
// how many bytes of content follow (4 bytes), a checksum of those (8 bytes). All of these are little-endian. The content is a
// row of records, and each record is a row of numbers. A number takes 7 bits a byte, the lowest first; bit 7 says that more
// follow (LEB128). A signed one is folded so that small ones stay short (zigzag). The first number of a record says what it is:
//
//     1 to 15     a definition or a state; the next number is how many bytes follow, so that a reader can pass over it:
//       1 moment    ticks, nanoseconds of the steady clock, nanoseconds since 1970
//       2 frame     its number (trace/name_table.hpp), caller, line, file, function
//       3 source    its number, device (signed), space, limit plus 1 (0: none), name
//       4 stream    CUDA's handle: the next number, from 0
//       5 thread    its number in the process: the next number, from 0
//       6 context   kind, stream, thread, source, site, log2 of the alignment: the next number, from 0
//       7 lost      how many events were lost so far
//       8 base      ticks: the next event's time counts from here
//       9 forget    all numbers of streams, threads, contexts and slots (see below) are used anew from here on
//     16 and more an event of the context of that number less 16: ticks since the event before; its place; perhaps its size
//
// A text is its length and its bytes. A place is a slot number times 2, plus 1 if bytes and extra bytes are those that the slot
// had last; if not, the size follows. A slot is an address that was seen before; slot 0 is the address 0. The number of the
// next slot says that an address follows, which has that slot from then on. A scaled number is up to 15 zeros that it ends in
// (4 bits), a flag (1 bit), and what is left (64 bits). An address is its distance from the address that was new before it,
// scaled; the flag says that it lies below. A size is the bytes, scaled; the flag says that extra bytes follow. A stream whose
// end was told has a new number afterwards.
//
// invariant: a file that is cut off is readable up to its last whole segment.
// cost:      5 to 8 bytes an event where blocks come back to addresses that were seen before; 10 to 14 elsewhere.
// not for:   a format that others read: examples/replay converts.

#include <cstddef>
#include <cstdint>

namespace weir {
inline namespace v0 {
namespace trace {

inline constexpr unsigned char file_mark[8] = {0x89, 'w', 'e', 'i', 'r', '\r', '\n', 0x1a};
inline constexpr std::uint32_t file_version = 1;
inline constexpr std::uint32_t segment_mark = 0x53726577; // 'werS'
inline constexpr std::size_t file_head_bytes = 12;
inline constexpr std::size_t segment_head_bytes = 16;

enum class record_kind : unsigned {
    moment = 1,
    frame = 2,
    source = 3,
    stream = 4,
    thread = 5,
    context = 6,
    lost = 7,
    base = 8,
    forget = 9,
    first_event = 16
};

/// The most slots before all is forgotten, so that writer and reader stay small.
inline constexpr std::uint32_t most_slots = 1u << 20;
/// What is longer is cut.
inline constexpr std::size_t most_text_bytes = 65535;

/// A checksum that finds what is damaged by accident: FNV-1a over words of 8 bytes, the last one filled up with zeros.
inline std::uint64_t checksum_of(unsigned char const* bytes, std::size_t count) noexcept {
    std::uint64_t sum = 0xcbf29ce484222325u;
    auto const add = [&sum](unsigned char const* from, std::size_t length) {
        std::uint64_t word = 0;
        for (std::size_t i = 0; i < length; ++i)
            word |= std::uint64_t{from[i]} << 8 * i;
        sum = (sum ^ word) * 0x100000001b3u;
        sum ^= sum >> 32; // so that high bits count, too
    };
    std::size_t at = 0;
    for (; at + 8 <= count; at += 8)
        add(bytes + at, 8);
    add(bytes + at, count - at);
    return sum;
}

/// A signed number as one without a sign: 0, -1, 1, -2, ...
constexpr std::uint64_t folded(std::int64_t number) noexcept {
    return static_cast<std::uint64_t>(number) << 1 ^ static_cast<std::uint64_t>(number >> 63);
}
constexpr std::int64_t unfolded(std::uint64_t number) noexcept {
    return static_cast<std::int64_t>(number >> 1 ^ (0 - (number & 1)));
}

/// By how many bits a number can be shifted right and left again, 15 at most.
constexpr unsigned shift_of(std::uint64_t number) noexcept {
    unsigned shift = 0;
    while (shift < 15 && number != 0 && (number >> shift & 1) == 0)
        ++shift;
    return shift;
}

/// What an event has in common with many others.
struct event_context {
    std::uint32_t kind = 0;
    std::uint32_t stream = 0;
    std::uint32_t thread = 0;
    std::uint32_t source = 0;
    std::uint32_t site = 0;
    std::uint32_t log2_alignment = 0;

    friend bool operator==(event_context const& a, event_context const& b) noexcept {
        return a.kind == b.kind && a.stream == b.stream && a.thread == b.thread && a.source == b.source && a.site == b.site &&
               a.log2_alignment == b.log2_alignment;
    }
};

/// What was seen last at an address.
struct address_slot {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint32_t extra_bytes = 0;
};

} // namespace trace
} // namespace v0
} // namespace weir
