// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: weir::scope needs a pool over an arena, with 'mark()' and 'rewind(mark)'
#include <weir/growth/geometric.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/pool/scope.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/host.hpp>

#ifdef REJECT
using my_placement = weir::placement::best_fit<>;
#else
using my_placement = weir::placement::arena;
#endif

void use() {
    weir::pool<weir::upstream::host, my_placement, weir::reuse::immediate> pool;
    weir::scope const frame(pool);
}
