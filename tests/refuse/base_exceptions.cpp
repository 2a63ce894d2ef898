// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: throws where there is no memory; compile with exceptions
#ifdef REJECT
#undef __cpp_exceptions
#endif
#include <weir/fwd.hpp>

int version() {
    return WEIR_VERSION;
}
