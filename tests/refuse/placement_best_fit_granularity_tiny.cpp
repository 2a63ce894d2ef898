// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: best_fit's GranularityBytes must be a power of two of at least 16, as in 'best_fit<512>'
#include <weir/placement/best_fit.hpp>

#ifdef REJECT
using placement_type = weir::placement::best_fit<8>;
#else
using placement_type = weir::placement::best_fit<16>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
