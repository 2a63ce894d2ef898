// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a device_vector does not fill added elements; 'resize(n)', and fill them with
#include <weir/container/vector.hpp>

void grow(weir::device_vector<int>& xs) {
#ifdef REJECT
    xs.resize(10, 1);
#else
    xs.resize(10);
#endif
}
