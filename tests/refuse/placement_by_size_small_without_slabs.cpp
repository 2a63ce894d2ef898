// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: by_size's Small slot needs 'static std::size_t refill(std::size_t bytes, std::size_t alignment)'
// expect: use 'bins<>'
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

#ifdef REJECT
using placement_type = weir::placement::by_size<64 * weir::KiB, weir::placement::best_fit<>, weir::placement::best_fit<>>;
#else
using placement_type = weir::placement::by_size<64 * weir::KiB, weir::placement::bins<>, weir::placement::best_fit<>>;
#endif

weir::base::range use(placement_type& placement) {
    return placement.take(1, 1);
}
