// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: multi_device::per_device makes each pool from options that name its device; for a pool with others than
#include <weir/driver/driver_pool.hpp>
#include <weir/multi_device.hpp>

#ifdef REJECT
using pools = weir::multi_device::per_device<weir::driver_pool>;
#else
using pools = weir::multi_device::per_device<weir::driver_pool, weir::driver_pool_options>;
#endif

weir::driver_pool& use(pools& all) {
    return all.current();
}
