// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a recording of weir's own (<weir/trace/recording.hpp>) become a trace?
//
// Allocations and frees of all pools in it, in the order of their time. An address is a block from its allocation to its free. What
// the recording lacks, because it began late or lost events, is made good: a free of a block whose allocation is not there is left
// out, and a block ends before its address is handed out again.
//
// not for: refusals, uses on other streams and what the pool did: a replay looks at those anew.

#include "trace.hpp"
#include <string>
#include <string_view>

namespace replay {

/// Whether a file that begins so is a recording.
bool looks_like_recording(std::string_view bytes);

/// Reads a recording; `path` names it in messages. Throws bad_input.
trace trace_of_recording(std::string_view bytes, std::string const& path);

} // namespace replay
