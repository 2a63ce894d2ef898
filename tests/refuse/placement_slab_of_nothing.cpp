// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: placement::slab needs blocks of at least one byte
#include <weir/placement/slab.hpp>

#ifdef REJECT
using placement_type = weir::placement::slab<0>;
#else
using placement_type = weir::placement::slab<1>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
