// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: 'static constexpr unsigned moved_percent' of at least 1
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/virtual_memory.hpp>

struct my_growth : weir::growth::paged<> {
#ifdef REJECT
    static constexpr double moved_percent = 0.25;
#else
    static constexpr unsigned moved_percent = 25;
#endif
};

void use() {
    weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::stream_ordered<>, my_growth> pool;
    pool.trim();
}
