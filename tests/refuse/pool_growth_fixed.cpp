// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: growth::fixed needs a chunk size of at least one byte
#include <weir/growth/fixed.hpp>

#ifdef REJECT
using my_growth = weir::growth::fixed<0>;
#else
using my_growth = weir::growth::fixed<1>;
#endif

std::size_t use() {
    return my_growth::next(1, 2);
}
