// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do reports and refusals read?
//
// A number of bytes has a binary unit and two decimals, cut and not rounded, where it is not whole: '256 B', '1.50 MiB',
// '8 GiB'.
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

/// Why a pool of `kind` memory has no room for a block that needs a chunk of `chunk_bytes` bytes (0: no chunk can hold it).
inline std::string refusal_text(std::size_t chunk_bytes, bool at_limit, std::size_t refused_bytes, char const* kind) {
    if (chunk_bytes == 0)
        return "no block of this pool can have that size and alignment; ask for less";
    std::string const chunk = "another chunk of " + std::to_string(chunk_bytes) + " bytes";
    if (!at_limit)
        return std::string("no free range is large enough and the upstream (") + kind + " memory) has no room for " + chunk +
               "; free something, here or in another pool";
    return "no free range is large enough and the pool's limit leaves no room for " + chunk +
           (refused_bytes == 0
                ? ""
                : ", while the upstream refuses to take " + std::to_string(refused_bytes) + " free bytes back") +
           "; raise pool_options::limit or free something";
}

} // namespace v0
} // namespace weir
