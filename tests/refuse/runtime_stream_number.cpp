// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: deleted
#include <weir/runtime/stream.hpp>

#ifdef REJECT
weir::stream_ref use() {
    return 0; // which default stream?
}
#else
weir::stream_ref use() {
    return cudaStream_t{};
}
#endif
