// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a device_vector does not fill its elements; make it with a size alone, and fill it
#include <weir/container/vector.hpp>

weir::device_vector<int> made(weir::device_pool_ref pool, cudaStream_t stream) {
#ifdef REJECT
    return weir::device_vector<int>(pool, stream, 10, 1);
#else
    return weir::device_vector<int>(pool, stream, 10);
#endif
}
