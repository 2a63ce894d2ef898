// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which call site grew from one recording to another?
//
// Each call site has its own peak in each recording, what it held when the whole program had most, and how many blocks it asked for.
// Sites are the same if file, line and function are; those that then are left over are paired where a function of a file is left
// over once on each side, since lines move as programs change. A trace without call sites is one site, 'not known'.
//
// not for:   who called whom: a call site is its innermost frame.

#include "trace.hpp"
#include <cstdint>
#include <string>
#include <vector>

namespace replay {

/// What one call site did in one recording.
struct site_use {
    std::uint64_t peak_bytes = 0;    ///< the most that it had live
    std::uint64_t at_peak_bytes = 0; ///< what it had live when the whole program had most
    std::uint64_t blocks = 0;        ///< how many it asked for
};

/// One call site in both.
struct site_change {
    std::string site; ///< as the first has it, if it is there
    site_use before, after;
};

/// The sites whose peaks changed most come first, growth before what shrank as much.
std::vector<site_change> changes_between(trace const& before, trace const& after);

/// A table for people, of at most `most` call sites.
std::string as_table(std::vector<site_change> const& changes, trace const& before, trace const& after, std::size_t most);

/// The same for the page.
std::string as_card(std::vector<site_change> const& changes, trace const& before, trace const& after, std::size_t most);

} // namespace replay
