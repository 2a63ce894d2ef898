// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: '0', 'nullptr', 'NULL' and other numbers do not say which stream they mean; write 'weir::default_stream',
// expect: 'cudaStreamLegacy' or 'cudaStreamPerThread', or pass a cudaStream_t
// errors: 1
#include <weir/runtime/stream.hpp>

weir::stream_ref use() {
#ifdef REJECT
    return 0;
#else
    return cudaStream_t{};
#endif
}
