// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: this reuse rule does not work over this placement.
// expect: Over an arena use 'reuse::immediate'; over a slab each rule works
// errors: 1
#include <weir/growth/geometric.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>

#ifdef REJECT
using my_placement = weir::placement::arena;
#else
using my_placement = weir::placement::best_fit<>;
#endif

void use(cudaStream_t stream) {
    weir::pool<weir::upstream::device, my_placement, weir::reuse::stream_ordered<>> pool;
    pool.deallocate(stream, pool.allocate(stream, 1), 1);
}
