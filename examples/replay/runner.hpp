// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a pool do with a trace?
//
// A pool replays a trace in passes, each time cold: a fresh pool, on fresh streams, with nothing cached. The first
// pass watches: after every event it notes what the pool holds and which calls it made. Then, on a real device, passes
// that only run the events are timed by the clock, from the first event to the last, growth included, until they
// took a second or as many were made as were asked for; the median counts. Reading the trace and ending the
// pool is never timed.
//
// Where a block is freed on another stream than it was allocated on, one stream is made to wait for the other, as the
// program must have done. That is timed with the free.
//
// The trace holds no kernels, so the streams are idle: what is freed is free at once on every stream.
//
// invariant: a block that the pool refused is counted as a failure and its free is skipped; the replay goes on.
// not for:   judging a pool's speed under load from many threads: see bench/.

#include "contender.hpp"
#include "ledger.hpp"
#include "trace.hpp"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace replay {

/// Where the bytes were when the pool first held its most.
struct breakdown {
    std::size_t at_event = 0;
    std::uint64_t live_bytes = 0;       ///< asked for and not yet freed
    std::uint64_t handed_out_bytes = 0; ///< the same, rounded up by the pool
    std::uint64_t reserved_bytes = 0;   ///< held from the driver
};

/// What one pool did with one trace.
struct result {
    contender const* pool = nullptr;
    breakdown peak;
    std::vector<std::uint64_t> reserved_bytes; ///< after each event
    std::vector<std::uint32_t> calls_at;       ///< at each event: calls of the driver's
    std::vector<std::uint32_t> waiting_calls_at; ///< at each event: calls that make the device or the host wait
    std::uint64_t mean_reserved_bytes = 0;  ///< over the time from the first event to the last
    std::uint64_t driver_calls = 0;         ///< until the last event; what ending the pool costs is not in it
    std::uint64_t waiting_calls = 0;        ///< the same
    std::uint64_t stream_waits = 0;         ///< the same; a stream was made to wait for another one
    std::uint64_t operations = 0;           ///< allocations that were served, and frees
    std::uint64_t failures = 0;             ///< allocations that were refused
    std::optional<double> ns_per_operation; ///< of the host; none on the simulated device
};

struct run_options {
    std::size_t limit_bytes = no_limit;
    unsigned timed_passes = 5; ///< at most
    bool timed = true;
};

/// Called now and then with the part of the replay that is done, 0 to 1.
using progress_function = std::function<void(double)>;

/// Replays `trace` through `pool`. Throws weir::cuda_error.
result run(contender const& pool, trace const& trace, run_options const& options,
           progress_function const& progress);

} // namespace replay
