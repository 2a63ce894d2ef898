// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What would make a program hold less, and at what price?
//
// Each advice is tried before it is given: the trace is replayed as the program would run if it followed it, and what is said of it
// is what the replay gave. There are five kinds: another recipe; a limit, the least under which the pool calls the driver and waits
// no more often, and the least that serves at all; a pool of their own for blocks of one size (a slab) or of some call sites (a
// frame_pool); settle or trim where a named part of the program ends; and handover::wait_first, which keeps streams from hoarding.
//
// invariant: what is told saves 2 % and 1 MiB at least, in what is held at the peak, or on average where that is the point.
// cost:      at most 'most_replays' replays; a limit is searched for in steps of a 128th of its range.
// not for:   time: it is not measured, and a recording holds no kernels, so that streams wait for one another less than they might.

#include "runner.hpp"
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace replay {

/// What a replay gave.
struct replayed {
    std::uint64_t peak_bytes = 0, mean_bytes = 0; ///< reserved
    std::uint64_t driver_calls = 0, waiting_calls = 0, stream_waits = 0;
};

enum class advice_kind { recipe, limit, slab, frames, part_end, wait_first };

/// One change that saves something.
struct advice {
    advice_kind kind;
    std::string what;        ///< as the program would write it
    replayed then;
    std::uint64_t saved_bytes;
    bool is_of_mean;         ///< they are saved on average, and not at the peak
    std::size_t bytes = 0;   ///< a limit, or the blocks of a slab
};

/// What was found for one trace.
struct advices {
    std::string pool;
    replayed now;
    std::vector<advice> worth_it;     ///< what saves most first
    std::vector<std::string> tried;   ///< each change in a few words
    std::vector<std::string> untried; ///< each a sentence: why, and what to do
    unsigned replays = 0;

    std::uint64_t before(advice const& of) const { return of.is_of_mean ? now.mean_bytes : now.peak_bytes; }
};

inline constexpr unsigned most_replays = 36;

/// Called now and then with what is tried and the part of all replays that is done, 0 to 1.
using advice_progress = std::function<void(std::string const&, double)>;

/// Tries them on `pool`, one of weir's that shares its book. `limit_bytes`: what the program's limit is now. Throws weir::cuda_error.
advices advise(contender const& pool, trace const& what, std::size_t limit_bytes, advice_progress const& progress);

/// '1,227 more driver calls', 'and fewer calls that wait'; what the change costs or spares beside memory.
std::string price_of(replayed const& then, replayed const& now);

/// For a terminal, and for the page.
std::string as_text(advices const& found);
std::string as_card(advices const& found, trace const& of);

} // namespace replay
