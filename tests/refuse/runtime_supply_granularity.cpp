// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: over memory that grows in place a placement's granularity is at most a page of 2 MiB
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/virtual_memory.hpp>

#ifdef REJECT
using my_placement = weir::placement::best_fit<4 * weir::MiB>;
#else
using my_placement = weir::placement::best_fit<2 * weir::MiB>;
#endif

void use() {
    weir::pool<weir::upstream::virtual_memory<>, my_placement, weir::reuse::stream_ordered<>> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
