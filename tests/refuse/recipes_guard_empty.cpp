// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: WEIR_GUARD is 1 (the recipes catch wrong frees) or 0 (they do not); define it as one of these, or leave it out
// errors: 1
#ifdef REJECT
#define WEIR_GUARD
#else
#define WEIR_GUARD 0
#endif
#include <weir/recipes.hpp>

weir::recipes::frames::parts& of(weir::frame_pool& pool) {
    return pool;
}
