// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container's element must be trivially copyable
#include <weir/stable/stable_vector.hpp>

struct owner {
    int* held;
#ifdef REJECT
    ~owner() { delete held; }
#endif
};

void use(weir::stable_vector<owner>& xs) {
    xs.append(1);
}
