// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: a container's element must be trivially copyable, because elements travel between memories as
// bytes
#include <string>
#include <weir/container/vector.hpp>

struct plain {
    int size;
    char text[8];
};

#ifdef REJECT
template class weir::device_vector<std::string>;
#else
template class weir::device_vector<plain>;
#endif
