// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: stream_ref
#include <weir/runtime/stream.hpp>

struct has_stream {
#ifdef REJECT
    int stream() const { return 0; }
#else
    cudaStream_t stream() const { return cudaStreamLegacy; }
#endif
};

weir::stream_ref use(has_stream const& x) {
    return x;
}
