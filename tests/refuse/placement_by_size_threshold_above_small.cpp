// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: by_size's Small part must serve blocks of exactly ThresholdBytes; lower the threshold or raise the part's
// largest block
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

#ifdef REJECT
using placement_type = weir::placement::by_size<2 * weir::MiB, weir::placement::bins<>, weir::placement::best_fit<>>;
#else
using placement_type = weir::placement::by_size<1 * weir::MiB, weir::placement::bins<>, weir::placement::best_fit<>>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
