// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a block of an any_pool may be freed while enqueued work uses it, and this pool would hand it out again at once;
#include <utility>
#include <weir/layer/synchronized.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>

#ifdef REJECT
using rule = weir::reuse::immediate;
template <class Pool>
using chosen = weir::layer::synchronized<Pool>;
#else
using rule = weir::reuse::stream_ordered<>;
template <class Pool>
using chosen = Pool;
#endif

void use() {
    weir::any_device_pool pool(std::in_place_type<chosen<weir::pool<weir::upstream::device, weir::placement::best_fit<>, rule>>>);
    pool.trim();
}
