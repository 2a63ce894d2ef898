// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: by_size's Large slot needs 'void fence(range)', 'bool remove(range)'
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

#ifdef REJECT
using placement_type = weir::placement::by_size<64 * weir::KiB, weir::placement::bins<>, weir::placement::bins<>>;
#else
using placement_type = weir::placement::by_size<64 * weir::KiB, weir::placement::bins<>, weir::placement::best_fit<>>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
