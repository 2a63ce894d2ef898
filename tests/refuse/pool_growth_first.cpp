// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::geometric needs 'first_bytes' of at least one byte
#include <weir/growth/geometric.hpp>

struct my_tuning : weir::growth::geometric_tuning {
#ifdef REJECT
    static constexpr std::size_t first_bytes = 0;
#else
    static constexpr std::size_t first_bytes = 1;
#endif
};
using my_growth = weir::growth::geometric<my_tuning>;

std::size_t use() {
    return my_growth::next(1, 2);
}
