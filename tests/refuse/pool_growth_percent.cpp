// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::geometric grows by 1 to 100 percent
#include <weir/growth/geometric.hpp>

#ifdef REJECT
using my_growth = weir::growth::geometric<4096, 101>;
#else
using my_growth = weir::growth::geometric<4096, 100>;
#endif

std::size_t use() {
    return my_growth::next(1, 2);
}
