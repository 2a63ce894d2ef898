// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool for memory that host and device both use?
//
// order:     as device_pool.
// cost:      see upstream/managed.hpp.
// not for:   devices without managed memory, which 'reserve' and the first allocation say.

#include <weir/fwd.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/managed.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Managed memory, ordered by streams.
struct managed {
    using parts = pool<upstream::managed, general_placement, reuse::stream_ordered<>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
