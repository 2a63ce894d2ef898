// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: bins' MinimumBytes must be a power of two from 16 to 65536, as in 'bins<256>'
#include <weir/placement/bins.hpp>

#ifdef REJECT
using placement_type = weir::placement::bins<300>;
#else
using placement_type = weir::placement::bins<512>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
