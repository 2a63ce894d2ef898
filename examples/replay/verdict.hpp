// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How did the pool do that a user would take, in one sentence?
//
// The sentence is made of the figures and of nothing else. 'device_pool', or the first pool of weir's where that one was not
// asked, is held against every pool that is not weir's: peak reserved bytes, calls that wait, and time where there is one. A
// pool that is worse in none of them and better in one is ahead, and then the sentence begins with its name.
//
// invariant: pools that did other work (refused allocations), or whose memory the simulated device only guesses, are not
//            compared, and the sentence names them. Times that lie within 5 % of each other are alike.
// not for:   a judgement of speed without a GPU: there is no time then, and nothing is said about it.

#include "report.hpp"
#include <string>

namespace replay {

/// Never empty; no markup.
std::string verdict(comparison const& comparison, bool is_simulated);

/// The point of it in a line: what device_pool held, what the recorded program held itself, and cudaMalloc.
std::string point_of(comparison const& comparison);

} // namespace replay
