// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a pool takes its name in its options: 'pool_options{}.name(text)'
#include <weir/recipes/device_pool.hpp>

void use() {
#ifdef REJECT
    weir::device_pool pool("frames");
#else
    weir::device_pool pool(weir::pool_options{}.name("frames"));
#endif
}
