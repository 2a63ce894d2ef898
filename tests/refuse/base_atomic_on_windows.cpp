// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: is for Linux, with GCC or Clang as the host's compiler; on Windows build under WSL 2
#ifdef REJECT
#define _WIN32
#endif
#include <weir/base/threads/atomic.hpp>

int read(weir::base::atomic<int> const& value) {
    return value.load(weir::base::memory_order_acquire);
}
