// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool for ordinary memory of the host?
//
// It is what general_placement does for devices, with smaller steps.
//
// cost:      no call of CUDA.
// not for:   several threads: see layer::synchronized. Memory that devices copy: pinned_pool.

#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/host_growth.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/host.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Ordinary host memory, for one thread; no CUDA call.
struct host {
    using parts = pool<upstream::host, placement::by_size<64 * KiB, placement::bins<16>, placement::best_fit<64>>,
                       reuse::immediate, growth::geometric<host_growth>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
