// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A random program that uses a pool as CUDA programs do, on the simulated device.
//
// Three threads share four streams and a set of blocks; beside those each thread has its own default stream, and
// there is the legacy one. The program keeps the rules: it orders a use on another stream by an event, marks that stream
// at any time and keeps it until the free, or says 'last_used_on' behind the use, or waits before it frees; it records an event
// before it destroys a stream. So whatever the simulator reports is the
// pool's mistake. A seed decides everything: the operations, the threads' turns, when work runs, what fails.
//
// invariant: same options, same log, byte by byte.

#include "pools.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simulation {

struct options {
    std::uint64_t seed = 1;
    contestant const* pool = nullptr;
    std::size_t operations = 500; ///< of all threads together
    bool keeps_log = false;
};

struct outcome {
    std::vector<std::string> complaints; ///< empty: all is well
    std::string log;                     ///< with options::keeps_log
    std::size_t allocations = 0;
    std::size_t reuses = 0;   ///< those that began where a freed block did
    std::size_t refusals = 0; ///< allocations that found no room
    std::size_t moves = 0;    ///< chunks that were to move
    std::size_t launches = 0; ///< of graphs
    std::size_t pauses = 0;   ///< in which a pool was suspended
    std::size_t faults = 0;   ///< CUDA calls that were made to fail
};

/// Runs the program of a seed against a pool.
outcome run(options const& what);

/// What to tell of a failed run: how to see it again, and the last lines of the shortest beginning that fails too.
std::string account(options const& failed, outcome const& with);

} // namespace simulation
