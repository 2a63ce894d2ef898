// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The pieces that the page is put together from.

#include "lives.hpp"
#include "report.hpp"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace replay {

/// Text as HTML wants it, in attributes too: what is no UTF-8, as a file's name may be, becomes U+FFFD.
std::string escaped(std::string_view text);

/// Requested and reserved bytes over time: a chart for each pool, all of one scale, whose top is
/// `most_bytes`. `number` tells the page's traces apart.
std::string over_time(comparison const& comparison, std::uint64_t most_bytes, std::string const& number);

/// Where the bytes went at the peak: a bar for each pool, all of one scale. `most_bytes` is not 0.
std::string at_the_peak(comparison const& comparison, std::uint64_t most_bytes);

/// Where memory was free but of no use, by cause, over time and in numbers. "": nothing is known.
std::string idle_memory(comparison const& comparison);

/// What a recording says beside: who holds the peak, how long blocks live, and where they lie. "" for other traces.
std::string of_program(trace const& what);

/// Where its blocks lie, over time; `lives` are the program's, and not none.
std::string map_of(program const& of, std::vector<life> const& lives);

} // namespace replay
