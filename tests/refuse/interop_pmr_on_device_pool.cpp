// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host touches this memory, and a device pool's is out of its reach; use a pinned or managed pool,
#include <memory_resource>
#include <vector>
#include <weir/interop/pmr.hpp>
#include <weir/recipes.hpp>

#ifdef REJECT
using pool_type = weir::device_pool;
#else
using pool_type = weir::pinned_pool;
#endif

void use(pool_type& pool) {
    weir::interop::pmr::resource memory(pool);
    std::pmr::vector<int> const numbers(100, &memory);
}
