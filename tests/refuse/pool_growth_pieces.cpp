// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: 'filled' and 'holed' are each a growth::paged; derive from it, and include <weir/growth/paged.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

struct my_tuning : weir::growth::by_holes_tuning {
#ifdef REJECT
    using whole = weir::growth::exact;
#else
    using whole = weir::growth::paged<weir::growth::holed_tuning>;
#endif
};

std::size_t use() {
    return weir::growth::by_holes<my_tuning>::next(1, 2);
}
