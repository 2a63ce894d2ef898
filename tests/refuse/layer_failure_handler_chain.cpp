// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the handler slot needs 'bool operator()(weir::failed_allocation const&)', true where another try is worth it
#include <weir/driver/driver_pool.hpp>
#include <weir/layer/failure_handler.hpp>

#ifdef REJECT
auto const my_handler = [] { return false; }; // is not told what failed
#else
auto const my_handler = [](weir::failed_allocation const&) { return false; };
#endif

void use(weir::driver_pool& below, weir::driver_pool& other) {
    weir::layer::failure_handler pool(weir::handler::chain(weir::handler::trim(other), my_handler), below);
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
