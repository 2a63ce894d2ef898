// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What weir_top shows: a row a pool, a row a stream, with rates between two looks, peaks and history.

#include "board_view.hpp"
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weir_top {

/// Small bars, a character each: of the last `width` values, where the greatest is a full one.
std::string sparkline(std::deque<double> const& values, std::size_t width);

/// A number of a few characters: '950', '12.3k', '4.56M'.
std::string short_number(double value);

/// Remembers what was seen, and makes the rows of it.
class table {
public:
    /// Takes what the pools said; what has been seen before counts once.
    void add(std::vector<pool_sample> const& pools);
    /// The rows as lines of UTF-8, at most so many characters for history. The first is the head.
    std::vector<std::string> lines(std::size_t history_width) const;

private:
    static constexpr std::size_t most_history = 400;
    struct rates {
        double taken = -1, given = -1, bytes = -1; ///< a second; below zero: not known
    };
    struct seen_pool {
        pool_sample now;
        rates rate;
        std::map<std::uint64_t, rates> of_stream;
        std::uint64_t peak_in_use_bytes = 0; ///< that was seen
        std::deque<double> in_use;
    };

    std::map<std::pair<std::size_t, std::uint32_t>, seen_pool> pools_; ///< by place and life
};

} // namespace weir_top
