// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::paged needs 'usual_chunks' of at least 1
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

struct my_tuning : weir::growth::paged_tuning {
#ifdef REJECT
    static constexpr std::size_t usual_chunks = 0;
#else
    static constexpr std::size_t usual_chunks = 1;
#endif
};
using my_growth = weir::growth::paged<my_tuning>;

std::size_t use() {
    return my_growth::apart::next(1, 2);
}
