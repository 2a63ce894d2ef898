// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container takes the pool itself; hand 'pool' over, or '*pool', not what points to it
// errors: 1
#include <weir/container/buffer.hpp>
#include <weir/recipes.hpp>

weir::device_buffer use(weir::device_pool& pool, cudaStream_t stream) {
#ifdef REJECT
    return weir::device_buffer(&pool, stream, 10);
#else
    return weir::device_buffer(pool, stream, 10);
#endif
}
