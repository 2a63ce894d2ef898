// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do half a million events fit a screen?
//
// The axis, trace time or event number, is cut into columns of equal width; a column shows the most that held
// in it, so that no peak is lost, and a column without events shows what the last one left. Of what is counted a column has
// the sum.

#include "trace.hpp"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replay {

enum class axis { time, events };

/// Bytes that the program had asked for and not yet freed, after each event.
inline std::vector<std::uint64_t> requested_bytes(trace const& trace) {
    std::vector<std::uint64_t> after;
    after.reserve(trace.events.size());
    std::uint64_t live = 0;
    for (event const& e : trace.events)
        after.push_back(live = e.is_free ? live - e.bytes : live + e.bytes);
    return after;
}

/// Where the axis ends: microseconds or events.
inline std::uint64_t end_of(trace const& trace, axis along) {
    return along == axis::time ? std::max<std::uint64_t>(trace.microseconds.back(), 1) : trace.events.size();
}

/// The column of an event, out of `columns`.
inline std::size_t column_of(trace const& trace, axis along, std::size_t event, std::size_t columns) {
    double const at =
        along == axis::time ? static_cast<double>(trace.microseconds[event]) : static_cast<double>(event);
    double const part = at / static_cast<double>(end_of(trace, along));
    return std::min(columns - 1, static_cast<std::size_t>(part * static_cast<double>(columns)));
}

/// The most of `values`, one an event, in each of `columns` columns.
inline std::vector<std::uint64_t> highest(trace const& trace, axis along,
                                          std::vector<std::uint64_t> const& values, std::size_t columns) {
    std::vector<std::uint64_t> out(columns, 0);
    std::size_t column = 0;
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::size_t const here = column_of(trace, along, i, columns);
        while (column < here)
            out[++column] = last;
        last = values[i];
        out[column] = std::max(out[column], last);
    }
    while (++column < columns)
        out[column] = last;
    return out;
}

/// The sums of `counts`, one an event, in each of `columns` columns.
inline std::vector<std::uint64_t> sums(trace const& trace, axis along, std::vector<std::uint32_t> const& counts,
                                       std::size_t columns) {
    std::vector<std::uint64_t> out(columns, 0);
    for (std::size_t i = 0; i < counts.size(); ++i)
        out[column_of(trace, along, i, columns)] += counts[i];
    return out;
}

} // namespace replay
