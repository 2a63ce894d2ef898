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
#include <string>

namespace replay {

/// The least limit, in whole pages, that serves the trace through the pool; 0: none does. Throws weir::cuda_error.
std::uint64_t least_limit(contender const& pool, trace const& trace, progress_function const& progress);

/// 'yes', 'no' or 'within the margin' of 2 %, and by how much.
std::string fit_text(std::uint64_t least_bytes, std::uint64_t has_bytes);

} // namespace replay
