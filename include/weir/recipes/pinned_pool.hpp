// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool for host memory that devices copy from and to?
//
// order:     a block freed on a stream goes to anyone once that stream has reached the free.
// cost:      4 GiB are locked in a third of cudaHostAlloc's time or less: see upstream/registered_host.hpp.
// not for:   memory that no device copies: host_pool.

#include <weir/fwd.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/recipes/host_growth.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/upstream/registered_host.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Page-locked host memory for staging. A block freed on a stream may go to anyone once that stream has reached the free.
struct pinned {
    using parts = pool<upstream::registered_host, general_placement, reuse::after_event, growth::geometric<host_growth>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
