// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container takes its pool first, and the stream behind it: '(pool, stream, ...)'
// errors: 2
#include <weir/stable.hpp>

void use(weir::stable::page_pool& pages, cudaStream_t stream) {
#ifdef REJECT
    weir::stable_vector<float> xs(stream, pages);
    weir::stable_buffer bytes(weir::stream_ref(stream), pages, 10);
#else
    weir::stable_vector<float> xs(pages, stream);
    weir::stable_buffer bytes(pages, weir::stream_ref(stream), 10);
#endif
}
