// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth by exactly what is needed: how much does a pool ask its upstream for?
//
// The pool makes a driver call for each block that finds no room. That suits a few large blocks that live long.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// Exactly what is needed, with a driver call each time. It has the smallest footprint, and suits a few large blocks that
/// live long.
struct exact {
    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t) noexcept { return needed_bytes; }
};

} // namespace growth
} // namespace v0
} // namespace weir
