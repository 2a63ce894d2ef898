// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::paged has chunks of 'least_bytes' to 'most_bytes', both multiples of 2 MiB
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

struct my_tuning : weir::growth::paged_tuning {
#ifdef REJECT
    static constexpr std::size_t least_bytes = 3 * weir::MiB;
#else
    static constexpr std::size_t least_bytes = 4 * weir::MiB;
#endif
};
using my_growth = weir::growth::paged<my_tuning>;

std::size_t use() {
    return my_growth::next(1, 2);
}
