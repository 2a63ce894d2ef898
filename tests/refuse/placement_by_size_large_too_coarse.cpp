// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: by_size's Large part keeps the slabs of the Small part, so its granularity divides the smallest of them
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

#ifdef REJECT
using large = weir::placement::best_fit<4096>;
#else
using large = weir::placement::best_fit<1024>;
#endif
using placement_type = weir::placement::by_size<1 * weir::KiB, weir::placement::bins<16>, large>;

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
