// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the reuse slot's 'over' needs 'usage used()'
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/upstream/host.hpp>

struct my_rule {
    static constexpr bool thread_safe = false;
    static constexpr bool orders_streams = false;
    static constexpr bool waits_before_growing = false;
    template <class Placement>
    class over {
    public:
        over(int) {}
        weir::base::range take(std::size_t, std::size_t, weir::stream_ref) { return {}; }
        void give(weir::base::range, weir::stream_ref) noexcept {}
        void add(weir::base::range, weir::stream_ref) {}
        void settle() {}
#ifdef REJECT
        std::size_t used() { return 0; }
#else
        weir::base::usage used() { return {}; }
#endif
    };
};

void use() {
    weir::pool<weir::upstream::host, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
