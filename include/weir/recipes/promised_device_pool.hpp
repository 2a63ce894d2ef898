// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool if the program's streams live as long as the pool needs them?
//
// order:     as device_pool. See identity::promised for what the program promises.
// cost:      a pair of 'allocate' and 'deallocate' takes 26 ns (bench/results).
// not for:   streams that end while memory freed on them was not settled; work that is captured into graphs.

#include <weir/fwd.hpp>
#include <weir/recipes/general_device_pool.hpp>
#include <weir/reuse/stream_ordered.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// The same, for a program that promises that its streams outlive the pool's use of them (identity::promised): the fastest.
struct promised_device {
    using parts = general_device_pool<reuse::stream_ordered<identity::promised>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
