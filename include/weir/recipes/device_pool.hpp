// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool for a program of which nothing is known?
//
//     weir::device_pool pool;
//     void* const p = pool.allocate(stream, bytes);
//     pool.deallocate(stream, p, bytes);
//
// order:     memory that one stream freed goes to another when it has reached the free, or waits for it.
// cost:      a pair of 'allocate' and 'deallocate' takes 70 to 90 ns (bench/results).
// not for:   memory of the host: pinned_pool, host_pool, managed_pool.

#include <weir/fwd.hpp>
#include <weir/recipes/general_device_pool.hpp>
#include <weir/reuse/stream_ordered.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// Device memory for any program: any sizes, any number of streams and threads, streams that come and go.
struct device {
    using parts = general_device_pool<reuse::stream_ordered<identity::checked>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
