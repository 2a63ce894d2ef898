// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How often did the recorded pool hand memory of one stream to another, and who had to wait for that?
//
// A recording of recorded_device_pool, or of a pool with reuse::recorded, says it of each block: at once, since no work used the
// memory any more, or with the taker's stream waiting for that work. Where no stream can wait, the host does.
//
// not for:   what 'gather' brings together for a stream, which is memory that no work uses.

#include "trace.hpp"
#include <cstdint>
#include <string>

namespace replay {

struct hand_over_sums {
    struct part {
        std::uint64_t blocks = 0, bytes = 0;
    };
    part at_once, waits, not_told; ///< by what the taker's stream waits for
    std::uint64_t host_waits = 0, host_wait_ns = 0;
};
hand_over_sums hand_overs_of(program const& of);

/// A line for the terminal; "" where the recording says nothing of it.
std::string hand_overs_text(trace const& what);
/// The same, for the page.
std::string hand_overs_line(program const& of);

} // namespace replay
