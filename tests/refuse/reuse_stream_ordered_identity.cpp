// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the identity slot of reuse::stream_ordered needs 'static constexpr bool asks', 'static unsigned long long
// id(stream_ref)' and 'static void require_no_capture(stream_ref)'; it comes first, use 'identity::checked' or
// 'identity::promised'
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>

#ifdef REJECT
using my_rule = weir::reuse::stream_ordered<weir::handover::wait_first>; // the identity is forgotten
#else
using my_rule = weir::reuse::stream_ordered<weir::identity::checked, weir::handover::wait_first>;
#endif

void use(cudaStream_t stream) {
    weir::pool<weir::upstream::device, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate(stream, pool.allocate(stream, 1), 1);
}
