// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: so 'moved_percent' is at least 1
#include <weir/growth/by_holes.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

struct my_tuning : weir::growth::by_holes_tuning {
#ifdef REJECT
    static constexpr unsigned moved_percent = 0;
#else
    static constexpr unsigned moved_percent = 1;
#endif
};
using my_growth = weir::growth::by_holes<my_tuning>;

std::size_t use() {
    return my_growth::next(1, 2);
}
