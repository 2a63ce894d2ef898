// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a pool takes numbers by name: 'driver_pool_options{}.limit(bytes)'
#include <weir/driver/driver_pool.hpp>

void make() {
#ifdef REJECT
    weir::driver_pool pool(std::size_t{8} << 30);
#else
    weir::driver_pool pool(weir::driver_pool_options{}.limit(std::size_t{8} << 30));
#endif
}
