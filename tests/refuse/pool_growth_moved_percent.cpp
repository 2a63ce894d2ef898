// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: so MovedPercent is at least 1
#include <weir/growth/by_holes.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

#ifdef REJECT
using my_growth = weir::growth::by_holes<weir::growth::paged<>, weir::growth::paged<>, weir::growth::paged<>, 0>;
#else
using my_growth = weir::growth::by_holes<weir::growth::paged<>, weir::growth::paged<>, weir::growth::paged<>, 1>;
#endif

std::size_t use() {
    return my_growth::next(1, 2);
}
