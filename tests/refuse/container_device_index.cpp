// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host does not reach an element of a device_vector; use 'element_sync(i)' or
// errors: 1
#include <weir/container/vector.hpp>

void use(weir::device_vector<float>& xs) {
#ifdef REJECT
    xs[0] = 1.0f;
#else
    xs.set_element_async(0, 1.0f);
#endif
}
