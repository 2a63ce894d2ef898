// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: export_descriptor
#include <weir/driver/driver_pool.hpp>

#ifdef REJECT // CUDA does not export managed memory: there is no such member
using my_pool = weir::managed_driver_pool;
#else
using my_pool = weir::pinned_driver_pool;
#endif

int use(my_pool const& pool) {
    return pool.export_descriptor();
}
