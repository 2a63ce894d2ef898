// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: graph memory goes back to its pool while the graph's last launch may use it, and this pool would hand it out
#include <weir/graph/graph_memory.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes.hpp>

#ifdef REJECT
using rule = weir::reuse::immediate;
#else
using rule = weir::reuse::after_event;
#endif
using pool_type = weir::pool<weir::upstream::device, weir::placement::best_fit<>, rule>;

void use(pool_type& pool, cudaStream_t stream) {
    weir::graph_memory<pool_type> memory(pool);
    memory.deallocate(stream, memory.allocate(stream, 1), 1);
}
