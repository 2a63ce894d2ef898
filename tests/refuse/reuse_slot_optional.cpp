// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the reuse slot's 'over' has 'borrow', which must be 'range borrow(std::size_t bytes, std::size_t alignment,
// expect: weir: the reuse slot's 'over' needs both or none of 'void visit_usable(stream_ref, Visit const&)' and
// expect: weir: the reuse slot's 'over' needs both or none of 'Placement& placement()' and 'usage& counts()'
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
        template <class Visit>
        void visit_usable(weir::stream_ref, Visit const& visit) {
            visit(free_);
        }
        Placement& placement() { return free_; }
#ifdef REJECT
        bool borrow(std::size_t, std::size_t, weir::stream_ref) { return false; }
        weir::base::usage counts() { return counts_; }
#else
        weir::base::usage& counts() { return counts_; }
        template <class Visit>
        void visit_unused(Visit const& visit, std::size_t = 1) {
            visit(free_);
        }
#endif

    private:
        Placement free_;
        weir::base::usage counts_;
    };
};

void use() {
    weir::pool<weir::upstream::host, weir::placement::best_fit<>, my_rule> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
