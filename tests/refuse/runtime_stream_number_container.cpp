// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: '0', 'nullptr', 'NULL' and other numbers do not say which stream they mean; write 'weir::default_stream',
// expect: 'cudaStreamLegacy' or 'cudaStreamPerThread', or pass a cudaStream_t
// errors: 1
#include <weir/container/vector.hpp>
#include <weir/recipes.hpp>

weir::device_vector<float> use(weir::device_pool& pool) {
#ifdef REJECT
    return weir::device_vector<float>(pool, 0, 100);
#else
    return weir::device_vector<float>(pool, weir::default_stream, 100);
#endif
}
