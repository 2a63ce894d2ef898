// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: recent_blocks holds 1 to 64 blocks
#include <weir/reuse/stream_ordered/recent_blocks.hpp>

#ifdef REJECT
constexpr unsigned capacity = 65;
#else
constexpr unsigned capacity = 64;
#endif

bool use() {
    weir::reuse::detail::recent_blocks<capacity> store;
    return store.empty();
}
