// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a device_vector has no 'push_back', which would enqueue a copy for each element; collect the elements on
// errors: 1
#include <weir/container/vector.hpp>

void use(weir::device_vector<float>& xs) {
#ifdef REJECT
    xs.push_back(1.0f);
#else
    xs.append({1.0f});
#endif
}
