// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: needs C++17 or later; compile with -std=c++17
// errors: 1
#ifdef REJECT
#undef __cplusplus
#define __cplusplus 201402L
#endif
#include <weir/fwd.hpp>

int version() {
    return WEIR_VERSION;
}
