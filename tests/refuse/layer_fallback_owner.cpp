// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::fallback needs a first pool with 'bool owns(void const*) const', to know where a block goes back to
#include <weir/driver/driver_pool.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/host.hpp>

template <class Upstream>
using pool_over = weir::pool<Upstream, weir::placement::best_fit<>, weir::reuse::immediate>;

#ifdef REJECT
using both = weir::layer::fallback<weir::driver_pool, pool_over<weir::upstream::device>>;
#else
using both = weir::layer::fallback<pool_over<weir::upstream::device>, weir::driver_pool>;
#endif

void use(both& pool) {
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
