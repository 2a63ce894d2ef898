// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host does not reach an element of a stable_vector; use 'element_sync(i)' or
// errors: 1
#include <weir/stable/stable_vector.hpp>

void use(weir::stable_vector<float>& xs) {
#ifdef REJECT
    xs[0] = 1.0f;
#else
    xs.set_element_async(0, 1.0f);
#endif
}
