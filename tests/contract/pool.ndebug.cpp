// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The recipes as they are in a release build, with no guard around them.

#include "pool.cpp"

namespace {
template <class T>
struct is_guard : std::false_type {};
template <class Pool>
struct is_guard<weir::layer::guard<Pool>> : std::true_type {};
} // namespace

static_assert(!is_guard<weir::device_pool>::value && !is_guard<weir::pinned_pool>::value &&
              !is_guard<weir::host_pool>::value && !is_guard<weir::node_pool>::value);
