// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pools does advice try that are no contenders?
//
// 'steered' is a contender that does more than the trace's events say: some blocks go to a pool of their own, and where a part of
// the program ends, the pool settles or is trimmed, as the program would be written if it followed the advice.
//
// invariant: the calls and bytes of both pools are in one book.
// not for:   timed passes, which know nothing of it.

#include "contender.hpp"
#include "trace.hpp"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replay {

/// Where a part of the program begins or ends: before the event of that number.
struct border {
    std::size_t event;
    std::uint64_t us;
    bool is_end;
};

/// What is done beside a trace's events.
struct plan {
    std::vector<bool> apart = {};     ///< by block: it goes to a pool of its own; empty: none does
    std::size_t slab_bytes = 0;       ///< that pool is a slab of such blocks; 0: it is a frame_pool
    std::vector<border> borders = {}; ///< in their order: of the frames, or of what comes now
    bool settles = false;             ///< at each end
    bool trims = false;               ///< at each end, after that
};

/// `base`, one of weir's, and what the plan says beside. `what` and `how` outlive it.
contender steered(contender const& base, trace const& what, plan const& how);

/// device_pool with handover::wait_first.
contender const& wait_first_pool();

} // namespace replay
