// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a stable_vector has no 'push_back', which would enqueue a copy for each element
// errors: 1
#include <weir/stable/stable_vector.hpp>

void use(weir::stable_vector<float>& xs) {
#ifdef REJECT
    xs.push_back(1.0f);
#else
    xs.append({1.0f});
#endif
}
