// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::limit takes the limit first, and then what its pool is made from
#include <weir/weir.hpp>

std::size_t use(weir::device_pool& pool) {
#ifdef REJECT
    weir::layer::limit<weir::device_pool&> tenant(pool, 1 << 20);
#else
    weir::layer::limit<weir::device_pool&> tenant(1 << 20, pool);
#endif
    return tenant.limit_bytes();
}
