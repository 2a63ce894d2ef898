// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container takes its pool first, and the stream behind it: '(pool, stream, ...)'
// errors: 3
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>
#include <weir/recipes.hpp>

void use(weir::device_pool& pool, cudaStream_t stream) {
#ifdef REJECT
    weir::device_vector<float> xs(stream, pool, 10);
    weir::device_buffer bytes(weir::stream_ref(stream), pool);
    weir::device_value<int> number(stream, pool, 5);
#else
    weir::device_vector<float> xs(pool, stream, 10);
    weir::device_buffer bytes(pool, weir::stream_ref(stream));
    weir::device_value<int> number(pool, stream, 5);
#endif
}
