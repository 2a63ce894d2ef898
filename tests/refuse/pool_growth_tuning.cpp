// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the tuning slot of growth::geometric needs the three numbers of weir::growth::geometric_tuning; derive from it
// expect: weir: the tuning slot of growth::paged needs the members of weir::growth::paged_tuning; derive from it
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

#ifdef REJECT
using for_geometric = weir::growth::paged_tuning;
using for_paged = weir::growth::geometric_tuning;
#else
using for_geometric = weir::growth::geometric_tuning;
using for_paged = weir::growth::paged_tuning;
#endif

std::size_t use() {
    return weir::growth::geometric<for_geometric>::next(1, 2) + weir::growth::paged<for_paged>::next(1, 2);
}
