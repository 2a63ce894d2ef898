// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool for device memory that ends frame by frame?
//
// Nothing is freed by itself: weir::scope ends a frame, and with it all that was allocated in it.
//
// cost:      an allocation is an addition.
// not for:   several threads; blocks that outlive their frame (weir::scope ends it).

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/placement/arena.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/device.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// frame_pool's growth: twice as much each time, since a frame's chunks are used again from the first on.
struct frame_growth : growth::geometric_tuning {
    static constexpr unsigned share_percent = 100;
    static constexpr std::size_t exact_bytes = 256 * MiB;
};

/// Device memory that ends frame by frame: an allocation is an addition, and weir::scope ends the frame. One thread.
struct frames {
    using parts = pool<upstream::device, placement::arena, reuse::immediate, growth::geometric<frame_growth>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
