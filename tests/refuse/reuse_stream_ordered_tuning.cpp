// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the tuning slot of reuse::stream_ordered lacks a 'static constexpr' number; derive from
// 'reuse::stream_ordered_tuning' and hide what is to be otherwise
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>

#ifdef REJECT
struct my_tuning {
    static constexpr std::size_t recent_bytes = 0; // and nothing else
};
using my_rule = weir::reuse::stream_ordered<weir::identity::checked, weir::handover::grow_first, my_tuning>;
#else
struct my_tuning : weir::reuse::stream_ordered_tuning {
    static constexpr std::size_t recent_bytes = 0;
};
using my_rule = weir::reuse::stream_ordered<weir::identity::checked, weir::handover::grow_first, my_tuning>;
#endif

void use(cudaStream_t stream) {
    weir::pool<weir::upstream::device, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate(stream, pool.allocate(stream, 1), 1);
}
