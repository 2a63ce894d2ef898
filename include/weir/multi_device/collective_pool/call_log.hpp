// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Did all ranks make the same calls, and if not, which is the first that differs?
//
// Each rank counts its calls, keeps a hash of all of them, and the last 64 with what they were and what came of them, which is
// an offset. That is small enough to be exchanged. Ranks that differ have another hash or another count; the calls that are
// kept, each with the hash of all before it, tell where it began.
//
// invariant: two logs with equal count and hash are logs of the same calls (but for one case in 2^64).
// cost:      a call: 32 bytes and a few multiplications.
// not for:   what was done to the memory: only calls of the pool are here.

#include <cstddef>
#include <cstdint>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device::detail {

enum class call_kind : unsigned char { allocate, deallocate, use, settle, grow, agree };

/// A call of a pool. `stream`: its number in the order in which the pool met them.
struct pool_call {
    static constexpr std::uint32_t host = UINT32_MAX;
    static constexpr std::uint64_t refused = UINT64_MAX;

    std::uint64_t hash_before = 0; ///< of all calls before it
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0; ///< of the block in the pool; `refused`: there was no room
    std::uint32_t stream = 0;
    call_kind kind = call_kind::agree;
    unsigned char alignment_log2 = 0;
    unsigned char padding[2] = {};

    friend bool operator==(pool_call const& a, pool_call const& b) noexcept {
        return a.bytes == b.bytes && a.offset == b.offset && a.stream == b.stream && a.kind == b.kind &&
               a.alignment_log2 == b.alignment_log2;
    }

    text said() const {
        text const size = base::exact_bytes_text(static_cast<std::size_t>(bytes));
        text const place = stream == host ? text(" on the host") : " on stream " + base::number_text(stream);
        switch (kind) {
        case call_kind::allocate:
            return "allocate " + size + " at a multiple of " + base::number_text(std::size_t{1} << alignment_log2) + place +
                   (offset == refused ? text(", which was refused") : ", which got offset " + base::number_text(offset));
        case call_kind::deallocate:
            return "deallocate " + size + " at offset " + base::number_text(offset) + place;
        case call_kind::use:
            return "use what is at offset " + base::number_text(offset) + place;
        case call_kind::settle:
            return "settle";
        case call_kind::grow:
            return "grow by " + size;
        default:
            return "agree";
        }
    }
};

/// What ranks exchange. Copied as bytes.
struct call_log {
    static constexpr std::size_t kept = 64;

    std::uint64_t count = 0;
    std::uint64_t hash = 0;
    std::uint64_t pool = 0; ///< whose log it is: its number on the channel
    pool_call last[kept];

    void note(call_kind kind, std::size_t bytes = 0, std::uint64_t offset = 0, std::uint32_t stream = pool_call::host,
              unsigned alignment_log2 = 0) noexcept {
        pool_call& call = last[count++ % kept];
        call.hash_before = hash;
        call.bytes = bytes;
        call.offset = offset;
        call.stream = stream;
        call.kind = kind;
        call.alignment_log2 = static_cast<unsigned char>(alignment_log2);
        std::uint64_t const rest = std::uint64_t{stream} << 16 | static_cast<std::uint64_t>(kind) << 8 | alignment_log2;
        hash = mixed(mixed(mixed(hash, bytes), offset), rest);
    }

    /// The oldest call that is kept, as its number from 0.
    std::uint64_t oldest() const noexcept { return count < kept ? 0 : count - kept; }
    pool_call const& operator[](std::uint64_t number) const noexcept { return last[number % kept]; }
    std::uint64_t hash_before(std::uint64_t number) const noexcept {
        return number == count ? hash : (*this)[number].hash_before;
    }

private:
    static std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept {
        std::uint64_t const x = (hash ^ word) * 0x9E3779B97F4A7C15u; // an odd number near 2^64 divided by the golden ratio
        return x ^ x >> 29;
    }
};

/// Where two logs differ first.
struct log_difference {
    std::uint64_t number = UINT64_MAX; ///< the call's number; UINT64_MAX: they are equal
    bool is_older = false;             ///< before that number, where not both have kept the calls

    explicit operator bool() const noexcept { return number != UINT64_MAX; }
};

inline log_difference difference_of(call_log const& a, call_log const& b) noexcept {
    if (a.count == b.count && a.hash == b.hash)
        return {};
    std::uint64_t number = a.oldest() > b.oldest() ? a.oldest() : b.oldest();
    std::uint64_t const end = a.count < b.count ? a.count : b.count;
    if (number > end || a.hash_before(number) != b.hash_before(number))
        return {number > end ? end : number, true};
    while (number != end && a[number] == b[number])
        ++number;
    return {number, false};
}

/// The sentence on ranks that differ: the first call in which one differs from rank 0, or the pool that it calls. Empty if they
/// do not. The same on every rank. `logs`: of all ranks, in their order, each with a call at least.
inline text disagreement_text(text const& name, call_log const* logs, int ranks) {
    char const* const advice = "; make the same calls in the same order on every rank, whatever each one's work is";
    auto const whose = [](call_log const& log) {
        return "'" + log[log.count - 1].said() + "' of pool " + base::number_text(static_cast<std::size_t>(log.pool));
    };
    for (int each = 1; each < ranks; ++each)
        if (logs[each].pool != logs[0].pool)
            return "weir: the ranks call different pools of one channel: rank 0 " + whose(logs[0]) + " and rank " +
                   base::number_text(static_cast<std::size_t>(each)) + " " + whose(logs[each]) +
                   ", in the order in which each made them" + advice;
    log_difference first;
    int with = 0;
    for (int each = 1; each < ranks; ++each) {
        log_difference const found = difference_of(logs[0], logs[each]);
        if (found && (!first || found.number < first.number)) {
            first = found;
            with = each;
        }
    }
    if (!first)
        return {};
    text const head = "weir: the ranks of pool '" + name + "' differ";
    text const other = base::number_text(static_cast<std::size_t>(with));
    if (first.is_older)
        return head + " before call " + base::number_text(first.number + 1) + ", rank " + other +
               " from rank 0; calls that old are not kept, so call 'agree' more often to see which it is" + advice;
    auto const call_of = [&](call_log const& log) {
        return first.number < log.count ? "'" + log[first.number].said() + "'" : text("none yet");
    };
    return head + ": call " + base::number_text(first.number + 1) + " is " + call_of(logs[0]) + " on rank 0 and " +
           call_of(logs[with]) + " on rank " + other + advice;
}

} // namespace multi_device::detail
} // namespace v0
} // namespace weir
