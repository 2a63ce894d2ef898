// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: reuse::recorded writes to the recorder of its pool's upstream, and this upstream has none; use 'weir::upstream::recorded<...>'
// errors: 1
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/recorded_rule.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/recorded.hpp>

#ifdef REJECT
using my_upstream = weir::upstream::device;
#else
using my_upstream = weir::upstream::recorded<weir::upstream::device>;
#endif

void use(cudaStream_t stream, my_upstream const& from) {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::recorded<weir::reuse::stream_ordered<>>> pool(from);
    pool.deallocate(stream, pool.allocate(stream, 1), 1);
}
