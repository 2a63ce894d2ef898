// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: an integer as storage would cut the fraction off; store a float type of fewer bits, such as __half or
// __nv_fp8_e4m3 with a scale
#include <weir/converting/converting_view.hpp>

#ifdef REJECT
using storage = signed char;
#else
using storage = float;
#endif

void keep(storage* row, double value) {
    weir::converting_view<double, storage>(row, 1, 0.5)[0] = value;
}
