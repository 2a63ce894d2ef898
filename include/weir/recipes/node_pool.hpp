// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool for many small nodes in page-locked memory?
//
// All blocks have one size, so finding one is taking the first of a list.
//
// cost:      constant time.
// not for:   several threads; other sizes than 64 bytes.

#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/pool_of.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/pinned.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Pinned nodes of 64 bytes in O(1). One thread.
struct nodes {
    using parts = pool<upstream::pinned<>, placement::slab<64>, reuse::immediate, growth::fixed<1 * MiB>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
