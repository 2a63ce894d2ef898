// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::geometric grows by a 'share_percent' of 1 to 100
#include <weir/growth/geometric.hpp>

struct my_tuning : weir::growth::geometric_tuning {
#ifdef REJECT
    static constexpr unsigned share_percent = 101;
#else
    static constexpr unsigned share_percent = 100;
#endif
};
using my_growth = weir::growth::geometric<my_tuning>;

std::size_t use() {
    return my_growth::next(1, 2);
}
