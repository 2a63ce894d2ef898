// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which blocks of a program could have a pool of their own, and at the end of which parts could its pool settle?
//
// Three answers, found in the trace alone:
//   sizes    most of what is live at a time are blocks of one size: a slab;
//   frames   all blocks of some call sites end before the part of the program that they begin in, or the one that began last ends
//            first: a frame_pool, whose blocks are of one stream and one thread;
//   ends     parts of the program that have a name, those first at whose ends the pool held most that nobody had.
//
// cost:      a few passes over the events for each answer.
// not for:   whether it saves anything: a replay says that (advice.hpp).

#include "tried_pool.hpp"
#include "trace.hpp"
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace replay {

/// Blocks of nearly one size.
struct one_size {
    std::size_t slab_bytes;      ///< what the largest of them need
    std::size_t more_than_bytes; ///< what the smallest have more than
    std::uint64_t peak_bytes;    ///< the most that was live of them
    std::vector<bool> blocks;
};
/// Those that make up much of the peak, the greatest first; at most `most`.
std::vector<one_size> sizes_in(trace const& of, std::size_t most);

/// Call sites whose blocks could be a frame_pool's.
struct frame_sites {
    std::string part;  ///< all of them end before it does; "": the last to begin is the first to end
    std::vector<std::string> sites;
    std::uint64_t peak_bytes;
    std::vector<bool> blocks;
    std::vector<border> borders; ///< of the part
};
/// Those with the most bytes first, at most `most`; none if the trace names no call site.
std::vector<frame_sites> frames_in(trace const& of, std::size_t most);

/// Where a named part of the program ends.
struct part_ends {
    std::string part;
    std::vector<border> borders;
};
/// `reserved_bytes`: what the pool held after each event.
std::vector<part_ends> ends_in(trace const& of, std::vector<std::uint64_t> const& reserved_bytes, std::size_t most);

/// Whether any block has a call site.
bool names_sites(trace const& of);

} // namespace replay
