// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a part stands in the slot of another kind of part; the order is 'weir::pool<Upstream, Placement, Reuse, Growth>',
// errors: 1
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>

namespace here {
using namespace weir;
#ifdef REJECT
using mine = pool<placement::best_fit<>, upstream::device, reuse::stream_ordered<>>;
#else
using mine = pool<upstream::device, placement::best_fit<>, reuse::stream_ordered<>, growth::exact>;
#endif
} // namespace here

void use(cudaStream_t stream) {
    here::mine pool(weir::pool_options{}.name("mine"));
    pool.deallocate(stream, pool.allocate(stream, 1), 1);
}
