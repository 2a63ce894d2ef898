// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::synchronized is for pools that one thread may use at a time; this one is thread-safe already
#include <weir/growth/geometric.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/pinned.hpp>

#ifdef REJECT
using rule = weir::reuse::after_event;
#else
using rule = weir::reuse::immediate;
#endif

void use() {
    weir::layer::synchronized<weir::pool<weir::upstream::pinned<>, weir::placement::best_fit<>, rule>> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
