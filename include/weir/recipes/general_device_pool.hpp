// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What are the device pools for any mix of sizes made of, whatever their rule for streams?
//
// They are one pool over mapped memory; the rule, and how it grows, differ.
//
// cost:      see upstream/virtual_memory.hpp: mapped memory grows in place.
// not for:   memory that other processes or libraries must be able to take for cudaMalloc's: see below.

#include <weir/fwd.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Mapped memory that grows in place. If it must be cudaMalloc's memory (cudaIpcGetMemHandle, GPUDirect RDMA, access from other
/// devices by cudaDeviceEnablePeerAccess), write the pool with upstream::device in place of the upstream and
/// growth::geometric<> in place of the growth policy.
template <class Reuse, class Growth = growth::by_holes<>>
using general_device_pool = pool<upstream::virtual_memory<>, general_placement, Reuse, Growth>;

} // namespace recipes
} // namespace v0
} // namespace weir
