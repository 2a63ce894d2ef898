// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: any thread may use an any_pool, and this pool is for one thread at a time; wrap it in
#include <utility>
#include <weir/layer/synchronized.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>

#ifdef REJECT
using chosen = weir::host_pool;
#else
using chosen = weir::layer::synchronized<weir::host_pool>;
#endif

void use() {
    weir::any_host_pool pool(std::in_place_type<chosen>);
    pool.trim();
}
