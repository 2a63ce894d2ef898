// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: copy the elements with 'xs.assign(ys)'
#include <weir/container/vector.hpp>

void copy(weir::pinned_vector<int>& to, weir::pinned_vector<int> const& from) {
#ifdef REJECT
    to = from;
#else
    to.assign(from);
#endif
}
