// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the reuse slot's 'over' has 'wait', so it needs 'std::size_t unsettled_bytes()', which 'settle' would free
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
        weir::base::usage used() { return {}; }
        weir::base::range borrow(std::size_t, std::size_t, weir::stream_ref) { return {}; }
        void gather(weir::stream_ref, bool) {}
        void reclaim() {}
        bool wait() { return false; }
#ifndef REJECT
        std::size_t unsettled_bytes() { return 0; }
#endif
    };
};

void use() {
    weir::pool<weir::upstream::host, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
