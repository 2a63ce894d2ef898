// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth by just what is needed: how much does a pool ask its upstream for?
//
// A driver call for each block that finds no room. For a few large and lasting blocks.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// Just what is needed, a driver call for each: the smallest footprint, for a few large and lasting blocks.
struct exact {
    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t) noexcept { return needed_bytes; }
};

} // namespace growth
} // namespace v0
} // namespace weir
