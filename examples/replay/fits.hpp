// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Will a program fit, and what is the least that serves it?
//
// Its trace is replayed under one limit after the other: between what it had live at most, and what the pool held without a limit,
// half of the range goes each time. A limit serves if no allocation is refused.
//
// cost:      a replay for each halving, some twelve in all.
// not for:   pools for which more may serve less: the least limit that was found serves, and one below it did not.

#include "runner.hpp"
#include <cstdint>
#include <functional>
#include <string>

namespace replay {

/// Pages of the driver's between what does not do and what does.
struct page_range {
    std::uint64_t too_few, enough;
};
/// What a trace's limit lies between: what is live at most may do, and what the pool held without a limit does.
page_range limits_for(trace const& of, result const& unlimited);
/// Halves the range until it is at most `width` pages, and returns its end; `does` says whether so many pages do. `progress` is
/// told how much of it is done.
std::uint64_t least_pages(page_range between, std::uint64_t width, std::function<bool(std::uint64_t)> const& does,
                          progress_function const& progress);

/// The least limit, in whole pages, that serves the trace through the pool; 0: none does. Throws weir::cuda_error.
std::uint64_t least_limit(contender const& pool, trace const& trace, progress_function const& progress);

/// 'yes', 'no' or 'within the margin' of 2 %, and by how much.
std::string fit_text(std::uint64_t least_bytes, std::uint64_t has_bytes);

} // namespace replay
