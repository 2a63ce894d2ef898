// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool of host memory grow?
//
// It starts with little, and then grows in few chunks, since programs use less of it than of a device's.
//
// cost:      none beyond growth::geometric's.
// not for:   device memory: see growth::by_holes.

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/growth/geometric.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Growth of host memory, of which programs use less: a small first chunk, then few.
struct host_growth : growth::geometric_tuning {
    static constexpr std::size_t first_bytes = 1 * MiB;
    static constexpr unsigned share_percent = 50;
    static constexpr std::size_t exact_bytes = 64 * MiB;
};

} // namespace recipes
} // namespace v0
} // namespace weir
