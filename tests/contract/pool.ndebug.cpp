// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The recipes as they are in a release build, with no guard around them.

#include "pool.cpp"
#include <weir/layer/record.hpp>
#include <weir/recipes/recorded_device_pool.hpp>

namespace {
template <class T>
struct is_guard : std::false_type {};
template <class Pool>
struct is_guard<weir::layer::guard<Pool>> : std::true_type {};
template <class Pool>
struct is_guard<weir::layer::record<Pool>> : is_guard<Pool> {};
template <class Recipe, bool Guarded>
struct is_guard<weir::recipes::pool_of<Recipe, Guarded>>
    : is_guard<typename weir::recipes::pool_of<Recipe, Guarded>::parts> {};
} // namespace

template <class... Pools>
constexpr bool none_is_guarded = (!is_guard<Pools>::value && ...);
static_assert(none_is_guarded<WEIR_TEST_POOLS, weir::recorded_device_pool>);
