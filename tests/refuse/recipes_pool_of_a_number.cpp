// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a pool takes numbers by name: 'pool_options{}.limit(bytes)'
#include <weir/recipes/device_pool.hpp>

void make() {
#ifdef REJECT
    weir::device_pool pool(std::size_t{8} << 30);
#else
    weir::device_pool pool(weir::pool_options{}.limit(std::size_t{8} << 30));
#endif
}
