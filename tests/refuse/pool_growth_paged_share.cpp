// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::paged grows by 1 / Share of what is held, so Share is at least 1
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

#ifdef REJECT
using my_growth = weir::growth::paged<0>;
#else
using my_growth = weir::growth::paged<1>;
#endif

std::size_t use() {
    return my_growth::apart::next(1, 2);
}
