// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container's element is a type of object without const or volatile
#include <weir/container/vector.hpp>

#ifdef REJECT
template class weir::pinned_vector<int const>;
#else
template class weir::pinned_vector<int const*>;
#endif
