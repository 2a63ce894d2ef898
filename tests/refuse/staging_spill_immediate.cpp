// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a spill_set frees memory behind work that uses it, and this pool hands out at once what is freed; use pools that
// are stream ordered, such as 'weir::device_pool' and 'weir::pinned_pool'
#include <weir/recipes.hpp>
#include <weir/staging/spill.hpp>

#ifdef REJECT
using pool_type = weir::node_pool;
#else
using pool_type = weir::pinned_pool;
#endif

void use(weir::device_pool& pool, pool_type& host) {
    weir::staging::spill_set<> const set(pool, host, weir::MiB);
}
