// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do reports read?
//
// A report says in one line what is so. Sizes are printed with their unit ('bytes_text').
//
// cost:      a text; reports only.
// not for:   what a program reads: those get plain numbers.

#include <cstddef>
#include <cstdint>
#include <weir/base/memory_report.hpp>
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

} // namespace resource
} // namespace v0
} // namespace weir
