// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the reuse slot's 'over' has 'wait', which must be 'bool wait()', true where something was in flight, so it needs
// 'void reclaim()', 'std::size_t unsettled_bytes()', which 'settle' would free
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
        bool wait() { return false; }
        std::size_t unsettled_bytes() { return 0; }
        void strand(weir::base::range) noexcept {}
        void lose(weir::base::range) noexcept {}
#ifndef REJECT
        void reclaim() {}
#endif
    };
};

void use() {
    weir::pool<weir::upstream::host, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
