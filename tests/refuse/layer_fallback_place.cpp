// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::fallback needs two pools whose memory can be used in one place: both from devices or both from the host
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
using second = pool_over<weir::upstream::host>;
#else
using second = weir::driver_pool;
#endif

void use(weir::layer::fallback<pool_over<weir::upstream::device>, second>& pool) {
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
