// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::geometric needs a first chunk of at least one byte
#include <weir/growth/geometric.hpp>

#ifdef REJECT
using my_growth = weir::growth::geometric<0>;
#else
using my_growth = weir::growth::geometric<1>;
#endif

std::size_t use() {
    return my_growth::next(1, 2);
}
