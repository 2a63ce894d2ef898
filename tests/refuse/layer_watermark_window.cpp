// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: layer::watermark needs a window of at least one allocation: its 'allocations_between_looks' and
// 'looks_in_half_window' must be 1 or more
#include <weir/layer/watermark.hpp>
#include <weir/pool/driver_pool.hpp>

struct my_tuning : weir::layer::watermark_tuning {
#ifdef REJECT
    static constexpr std::size_t looks_in_half_window = 0;
#else
    static constexpr std::size_t looks_in_half_window = 1;
#endif
};

void use(weir::layer::watermark<weir::driver_pool, my_tuning>& pool) {
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
