// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: reuse::stream_ordered needs a placement whose free bytes can move between streams: 'void absorb(Placement&)'
// and 'range lend(std::size_t bytes, std::size_t alignment)'
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
