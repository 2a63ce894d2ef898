// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which placement suits any mix of sizes?
//
// Small blocks lie in size classes, large ones where they fit best: the pool holds little, and is fast.
//
// cost:      see placement/by_size.hpp.
// not for:   blocks of one size (placement::slab), or that end together (placement::arena).

#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Small blocks in size classes, large ones by best fit: holds little and is fast for any mix of sizes.
using general_placement = placement::by_size<256 * KiB, placement::bins<>, placement::best_fit<>>;

} // namespace recipes
} // namespace v0
} // namespace weir
