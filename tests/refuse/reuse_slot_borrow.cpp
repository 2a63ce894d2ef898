// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the reuse slot's rule says 'waits_before_growing', so its 'over' needs 'range borrow(std::size_t bytes,
// std::size_t alignment, stream_ref)'
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/upstream/host.hpp>

struct my_rule {
    static constexpr bool thread_safe = false;
    static constexpr bool orders_streams = false;
    static constexpr bool waits_before_growing = true;
    template <class Placement>
    class over {
    public:
        over(int) {}
        weir::base::range take(std::size_t, std::size_t, weir::stream_ref) { return {}; }
        void give(weir::base::range, weir::stream_ref) noexcept {}
        void add(weir::base::range, weir::stream_ref) {}
        void settle() {}
        weir::base::usage used() { return {}; }
#ifndef REJECT
        weir::base::range borrow(std::size_t, std::size_t, weir::stream_ref) { return {}; }
#endif
        void gather(weir::stream_ref, bool) {}
        void expect_at_most(std::size_t) {}
        bool wait() { return false; }
        void reclaim() {}
        std::size_t unsettled_bytes() { return 0; }
        void strand(weir::base::range) noexcept {}
        void lose(weir::base::range) noexcept {}
    };
};

void use() {
    weir::pool<weir::upstream::host, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
