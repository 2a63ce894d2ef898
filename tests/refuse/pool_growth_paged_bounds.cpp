// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::paged has chunks of LeastBytes to MostBytes, both multiples of 2 MiB
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

#ifdef REJECT
using my_growth = weir::growth::paged<32, 3 * weir::MiB, 32 * weir::MiB>;
#else
using my_growth = weir::growth::paged<32, 4 * weir::MiB, 32 * weir::MiB>;
#endif

std::size_t use() {
    return my_growth::next(1, 2);
}
