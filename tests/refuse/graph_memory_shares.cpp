// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: graphs share memory by a placement with 'sibling', 'absorb' and 'lend', such as 'weir::placement::best_fit<>'
#include <weir/graph/graph_memory.hpp>
#include <weir/recipes.hpp>

#ifdef REJECT
struct own_placement : weir::placement::best_fit<> {}; // its sibling would be another's
#else
using own_placement = weir::placement::best_fit<>;
#endif

void use(weir::device_pool& pool, cudaStream_t stream) {
    weir::graph_memory<weir::device_pool, own_placement> memory(pool);
    memory.share(stream, 1);
}
