// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a stream is neither true nor false; ask 'is_host()'
#include <weir/runtime/stream.hpp>

int use(weir::stream_ref stream) {
#ifdef REJECT
    if (stream)
        return 1;
#else
    if (stream.is_host())
        return 1;
#endif
    return 0;
}
