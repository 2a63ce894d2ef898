// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container's element must be trivially copyable, because elements travel between memories as
// bytes
#include <array>
#include <string>
#include <weir/container/value.hpp>

#ifdef REJECT
template class weir::pinned_value<std::string>;
#else
template class weir::pinned_value<std::array<char, 8>>;
#endif
