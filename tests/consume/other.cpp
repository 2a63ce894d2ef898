// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The second translation unit: whatever weir defines in a header must bear being defined in both.
#include <weir/weir.hpp>

std::size_t in_use_after_a_pair(weir::device_pool& pool) {
    pool.deallocate_sync(pool.allocate_sync(256), 256);
    return pool.in_use_bytes();
}
