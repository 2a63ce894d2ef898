// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the host does not reach the numbers of a stored_vector, so it has no iterators; give
#include <weir/converting/stored_vector.hpp>

auto first(weir::stored_vector<double, float>& xs) {
#ifdef REJECT
    return xs.begin();
#else
    return xs.view().begin();
#endif
}
