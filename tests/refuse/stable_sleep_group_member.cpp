// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a sleep_group takes stable vectors and buffers, and pools that can be suspended
#include <weir/recipes.hpp>
#include <weir/stable.hpp>

#ifdef REJECT
using member = weir::pinned_pool;
#else
using member = weir::device_pool;
#endif

void use(member& joins, weir::pinned_pool& keep) {
    weir::stable::sleep_group sleepers(keep);
    sleepers.join("weights", joins);
}
