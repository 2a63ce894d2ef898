// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the handler slot needs 'bool operator()(weir::failed_allocation const&)', true where another try is worth it
#include <weir/driver/driver_pool.hpp>
#include <weir/layer/failure_handler.hpp>

struct my_handler {
#ifdef REJECT
    void operator()(weir::failed_allocation const&) {} // does not say whether it helped
#else
    bool operator()(weir::failed_allocation const&) { return false; }
#endif
};

void use(weir::layer::failure_handler<weir::driver_pool, my_handler>& pool) {
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
