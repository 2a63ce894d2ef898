// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are results written for a terminal, and for another program?

#include "device.hpp"
#include "idle.hpp"
#include "runner.hpp"
#include <string>
#include <vector>

namespace replay {

/// What every pool did with one trace.
struct comparison {
    trace const* what = nullptr;
    std::vector<result> results;
    std::vector<idle_report> idle = {}; ///< of weir's pool, and of the recorded program's
    std::string beside = {};            ///< for the page: this trace beside another one
    std::string advice = {};            ///< for the page: what was tried on it
};

/// The peak of reserved over the peak of requested bytes.
double overhead(trace const& trace, result const& result);
double overhead(trace const& trace, std::uint64_t reserved_bytes);

/// A table for people.
std::string as_table(comparison const& comparison, device_facts const& device);

/// Who held most at the peak, a line for each of the first three; "" for a trace that names no call site.
std::string holders_text(trace const& what);

/// What the table's columns mean.
std::string footnotes(run_options const& options);

/// The columns of `as_csv`, as a line.
std::string csv_header();

/// A line for each pool. A time that would mean nothing is an empty field.
std::string as_csv(comparison const& comparison);

} // namespace replay
