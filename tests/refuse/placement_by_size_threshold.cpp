// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: by_size's ThresholdBytes must be a power of two, as in 'by_size<64 * KiB, bins<>, best_fit<>>'
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

#ifdef REJECT
using placement_type = weir::placement::by_size<60000, weir::placement::bins<>, weir::placement::best_fit<>>;
#else
using placement_type = weir::placement::by_size<65536, weir::placement::bins<>, weir::placement::best_fit<>>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
