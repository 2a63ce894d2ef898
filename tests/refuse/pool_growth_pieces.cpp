// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::by_holes takes three growths in pieces: growth::paged, each
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

#ifdef REJECT
using my_part = weir::growth::exact;
#else
using my_part = weir::growth::paged<>;
#endif

std::size_t use() {
    return weir::growth::by_holes<my_part, weir::growth::paged<>, weir::growth::paged<>>::next(1, 2);
}
