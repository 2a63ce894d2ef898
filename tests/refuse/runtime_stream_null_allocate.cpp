// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: '0', 'nullptr', 'NULL' and other numbers do not say which stream they mean; write 'weir::default_stream',
// expect: 'cudaStreamLegacy' or 'cudaStreamPerThread', or pass a cudaStream_t
// errors: 1
#include <weir/recipes.hpp>

void* use(weir::device_pool& pool) {
#ifdef REJECT
    return pool.allocate(nullptr, 100);
#else
    return pool.allocate(weir::default_stream, 100);
#endif
}
