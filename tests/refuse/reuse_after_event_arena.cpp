// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: this reuse rule does not work over this placement.
// expect: Over an arena use 'reuse::immediate'; over a slab each rule works
// errors: 1
#include <weir/growth/geometric.hpp>
#include <weir/placement/arena.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/device.hpp>

#ifdef REJECT
using my_rule = weir::reuse::after_event;
#else
using my_rule = weir::reuse::immediate;
#endif

void use(cudaStream_t stream) {
    weir::pool<weir::upstream::device, weir::placement::arena, my_rule> pool;
    pool.deallocate(stream, pool.allocate(stream, 1), 1);
}
