// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: by_size's Large slot needs 'void fence(range)', 'bool remove(range)'
// expect: use 'best_fit<>'
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

#ifdef REJECT
using large = weir::placement::by_size<64 * weir::KiB, weir::placement::bins<4096>, weir::placement::best_fit<4096>>;
#else
using large = weir::placement::best_fit<4096>;
#endif
using placement_type = weir::placement::by_size<4 * weir::KiB, weir::placement::bins<256>, large>;

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
