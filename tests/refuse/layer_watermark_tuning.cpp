// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the tuning slot of layer::watermark needs the four numbers of weir::layer::watermark_tuning; derive from it
#include <weir/layer/watermark.hpp>
#include <weir/pool/driver_pool.hpp>

#ifdef REJECT
using my_tuning = int;
#else
using my_tuning = weir::layer::watermark_tuning;
#endif

void use(weir::layer::watermark<weir::driver_pool, my_tuning>& pool) {
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
