// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do reports and refusals read?
//
// A report says in one line what is so. A refusal says what is in the way and, behind a semicolon, what to do about it. Sizes
// are printed with their unit ('bytes_text').
//
// cost:      a text; reports only.
// not for:   what a program reads: those get plain numbers.

#include <cstddef>
#include <cstdint>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {
namespace resource {

/// One line on a pool's state; `kind`: where its memory is; "": not said.
inline text report_text(memory_report const& state, char const* kind) {
    return "pool '" + state.name + (*kind ? text("' (") + kind + "): " : text("': ")) +
           base::bytes_text(state.in_use_bytes) + " in use in " + base::count_text(state.live_blocks, " block") + ", " +
           base::bytes_text(state.reserved_bytes) + " reserved in " +
           base::count_text(state.chunks, " chunk") +
           (state.largest_free_bytes == SIZE_MAX ? "" : ", largest free " + base::bytes_text(state.largest_free_bytes)) +
           ", limit " + (state.limit_bytes == SIZE_MAX ? "none" : base::bytes_text(state.limit_bytes)) +
           (state.lost_bytes == 0 ? "" : ", " + base::bytes_text(state.lost_bytes) + " not handed out again");
}

/// The same, with what takes longer to find out. `line`: the pool's state in one line.
inline text full_report_text(text line, memory_report const& state) {
    if (state.device_free_bytes != SIZE_MAX)
        line = line + ", " + base::bytes_text(state.device_free_bytes) + " free on the device";
    for (live_block const& each : state.largest_live)
        line = line + (&each == state.largest_live.begin() ? "; the largest live blocks:" : "") + "\n  " +
               base::bytes_text(each.bytes) + " at " + base::address_text(each.address);
    return line;
}

/// What an upstream is known to lack.
struct upstream_lack {
    std::size_t most_bytes = SIZE_MAX; ///< it never has more; SIZE_MAX: not known
    bool addresses = false;            ///< its last refusal was for want of addresses
    text reason = {};                  ///< why it has no room, if it says so
};

/// Why a pool of `kind` memory that holds `held_bytes` bytes and may hold `limit_bytes` has no room for a block that needs a
/// chunk of `chunk_bytes` bytes (0: no chunk can hold it). `refused_bytes`: what its upstream did not take back.
/// `ends_together`: blocks end with a scope, and a free gives nothing back. `least_bytes`: the smallest chunk of any block.
inline text refusal_text(std::size_t chunk_bytes, std::size_t held_bytes, std::size_t limit_bytes, std::size_t refused_bytes,
                         char const* kind, bool ends_together = false, upstream_lack const& lack = {},
                         std::size_t least_bytes = 0) {
    if (chunk_bytes == 0)
        return "no block of this pool can have that size and alignment; ask for less";
    if (chunk_bytes > lack.most_bytes)
        return "it needs a chunk of " + base::exact_bytes_text(chunk_bytes) + ", and of " + kind + " memory there can be " +
               base::exact_bytes_text(lack.most_bytes) + " in all; ask for less";
    if (chunk_bytes > limit_bytes)
        return "it needs a chunk of " + base::exact_bytes_text(chunk_bytes) + ", more than the pool's limit of " +
               base::exact_bytes_text(limit_bytes) +
               (least_bytes > limit_bytes ? "; no chunk is smaller, so raise the pool's limit"
                                          : "; ask for less or raise the pool's limit");
    text const chunk = "another chunk of " + base::bytes_text(chunk_bytes);
    if (held_bytes <= limit_bytes - chunk_bytes && lack.addresses)
        return "no free range is large enough and the process has no more addresses for " + chunk +
               "; end pools that are not needed, unmap memory elsewhere, or raise the limit that the system sets ('ulimit -v')";
    if (held_bytes <= limit_bytes - chunk_bytes && !lack.reason.empty())
        return "no free range is large enough, and for " + chunk + " there is no room: " + lack.reason;
    if (held_bytes <= limit_bytes - chunk_bytes)
        return text("no free range is large enough and the upstream (") + kind + " memory) has no room for " + chunk +
               (ends_together
                    ? "; end a scope ('rewind' and 'clear' do as well, frees do not), or free something in another pool"
                    : "; free something, here or in another pool");
    return "no free range is large enough and the pool's limit leaves no room for " + chunk +
           (refused_bytes == 0
                ? ""
                : ", while the upstream refuses to take " + base::bytes_text(refused_bytes) + " of free memory back") +
           (ends_together ? "; raise the pool's limit or end a scope ('rewind' and 'clear' do as well, frees do not)"
                          : "; raise the pool's limit or free something");
}

/// Why a pool that holds `held_bytes` bytes cannot get `lacking_bytes` more for 'reserve', at once and in whole pages. 0: with
/// so many there would be more than there are addresses.
inline text reserve_refusal_text(std::size_t lacking_bytes, std::size_t held_bytes, std::size_t limit_bytes, char const* kind,
                                 upstream_lack const& lack = {}) {
    if (lacking_bytes == 0 || base::add_overflows(held_bytes, lacking_bytes))
        return "there are not so many addresses; reserve less";
    text const now = held_bytes == 0 ? "it needs " : "it holds " + base::exact_bytes_text(held_bytes) + " and needs another ";
    text const needs = now + base::exact_bytes_text(lacking_bytes) + ", and ";
    if (held_bytes + lacking_bytes > lack.most_bytes)
        return needs + "of " + kind + " memory there can be " + base::exact_bytes_text(lack.most_bytes) +
               " in all; reserve less";
    if (held_bytes + lacking_bytes > limit_bytes)
        return needs + "its limit is " + base::exact_bytes_text(limit_bytes) + "; reserve less or raise the pool's limit";
    if (lack.addresses)
        return needs + "the process has no more addresses for that; end pools that are not needed, unmap memory elsewhere, or "
                       "raise the limit that the system sets ('ulimit -v')";
    if (!lack.reason.empty())
        return needs + lack.reason;
    return needs + "the upstream (" + kind + " memory) has no room for that; reserve less or free something elsewhere";
}

} // namespace resource
} // namespace v0
} // namespace weir
