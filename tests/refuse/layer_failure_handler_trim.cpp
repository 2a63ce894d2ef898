// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: handler::trim needs a pool with 'std::size_t trim()', the bytes given back
#include <weir/driver/driver_pool.hpp>
#include <weir/layer/failure_handler.hpp>

struct my_pool : weir::resource::pool_base<my_pool> {
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {state(), "none"}; }
#ifndef REJECT
    std::size_t trim() { return 0; }
#endif
};

void use(weir::driver_pool& below, my_pool& mine) {
    weir::layer::failure_handler pool(weir::handler::trim(mine), below);
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
