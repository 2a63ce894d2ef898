// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host touches this memory, and a device pool's is out of its reach; use a pinned or managed pool,
#include <utility>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>

#ifdef REJECT
using chosen = weir::device_pool;
#else
using chosen = weir::managed_pool;
#endif

void use() {
    weir::any_pinned_pool pool(std::in_place_type<chosen>);
    pool.trim();
}
