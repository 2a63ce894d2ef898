// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a number of bytes read in a report?
//
// With a binary unit and two decimals, cut and not rounded, where it is not whole: '256 B', '1.50 MiB', '8 GiB'.
//
// cost:      a string; reports only.
// not for:   what a program reads: those get plain numbers.

#include <cstddef>
#include <cstdint>
#include <string>
#include <weir/base/error.hpp>
#include <weir/base/size.hpp>

namespace weir {
inline namespace v0 {

/// `bytes` for people.
inline std::string bytes_text(std::size_t bytes) {
    struct unit {
        std::size_t bytes;
        char const* name;
    };
    for (unit const& each : {unit{GiB, " GiB"}, unit{MiB, " MiB"}, unit{KiB, " KiB"}}) {
        if (bytes < each.bytes)
            continue;
        std::size_t const hundredths = bytes % each.bytes * 100 / each.bytes;
        std::string text = std::to_string(bytes / each.bytes);
        if (hundredths != 0)
            text += (hundredths < 10 ? ".0" : ".") + std::to_string(hundredths);
        return text + each.name;
    }
    return std::to_string(bytes) + " B";
}

/// `count` things that are called `name`: '1 chunk', '2 chunks'.
inline std::string count_text(std::size_t count, char const* name) {
    return std::to_string(count) + name + (count == 1 ? "" : "s");
}

/// One line on a pool's state; `kind`: where its memory is.
inline std::string report_text(memory_report const& facts, char const* kind) {
    return "pool '" + facts.name + "' (" + kind + "): " + bytes_text(facts.in_use_bytes) + " in use in " +
           count_text(facts.live_blocks, " block") + ", " + bytes_text(facts.reserved_bytes) + " reserved in " +
           count_text(facts.chunks, " chunk") + ", largest free " + bytes_text(facts.largest_free_bytes) + ", limit " +
           (facts.limit_bytes == SIZE_MAX ? "none" : bytes_text(facts.limit_bytes)) +
           (facts.lost_bytes == 0 ? "" : ", " + bytes_text(facts.lost_bytes) + " not handed out again");
}

} // namespace v0
} // namespace weir
