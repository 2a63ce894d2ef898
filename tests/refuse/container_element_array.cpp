// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container's element is no array, because functions cannot take or return one; hold a struct that has
#include <array>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>

#ifdef REJECT
using row = int[4];
#else
using row = std::array<int, 4>;
#endif

template class weir::device_value<row>;
template class weir::device_vector<row>;
template class weir::pinned_value<row>;
