// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a recorded program (program.hpp) become a trace, and a trace a program?
//
// Allocations and frees of all pools in it, in the order of their time. An address is a block from its allocation to its free. What
// the recording lacks, because it began late or lost events, is made good: a free of a block whose allocation is not there is left
// out, and a block ends before its address is handed out again.
//
// not for: refusals, uses on other streams and what the pool did: a replay looks at those anew.

#include "program.hpp"
#include "trace.hpp"
#include <string>

namespace replay {

/// The trace of a program; `path` names it in messages. Throws bad_input.
trace trace_of(program const& of, std::string const& path);

/// A program of a trace, whose blocks have numbers for addresses and no call sites.
program program_of(trace const& of);

} // namespace replay
