// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container takes the pool itself; hand 'pool' over, or '*pool', not what points to it
#include <memory>
#include <weir/container/vector.hpp>
#include <weir/recipes.hpp>

void use(std::unique_ptr<weir::device_pool>& pool, cudaStream_t stream) {
#ifdef REJECT
    weir::device_vector<float> xs(pool, stream, 10);
#else
    weir::device_vector<float> xs(*pool, stream, 10);
#endif
}
