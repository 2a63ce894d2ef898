// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the reuse slot's 'over' has 'visit_usable', so over an upstream that grows in place it needs 'void add(range,
// stream_ref, bool joins)'; true where free bytes before the range may join it
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/virtual_memory.hpp>

struct my_rule : weir::reuse::immediate {
    template <class Placement>
    class over : public weir::reuse::immediate::over<Placement> {
    public:
        using weir::reuse::immediate::over<Placement>::over;
#ifdef REJECT
        void add(weir::base::range, weir::stream_ref) {}
#endif
    };
};

void use() {
    weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, my_rule, weir::growth::paged<>> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
