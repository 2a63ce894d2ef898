// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every growth policy of weir's does what every policy promises. A new one adds a line to the list.

#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <support/growth_numbers.hpp>
#include <weir/base/size.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

using weir::MiB;
namespace growth = weir::growth;

namespace {

using greedy = support::geometric_of<1, 100, SIZE_MAX>;
using finest = support::paged_of<1, 2 * MiB, 4 * MiB>;

} // namespace

#define WEIR_TEST_GROWTHS                                                                                              \
    growth::exact,                                                                                                     \
    growth::fixed<1 << 20>,                                                                                            \
    growth::geometric<>,                                                                                               \
    greedy,                                                                                                            \
    growth::paged<>,                                                                                                   \
    finest,                                                                                                            \
    growth::by_holes<>

#include "growth_suite.hpp"

TEST_CASE("growth contract: geometric policies take a share of what is held") {
    std::mt19937_64 draw(2);
    for (int i = 0; i < 3000; ++i) {
        std::size_t const needed = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const held = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const step = growth::geometric<>::next(needed, held);
        REQUIRE((step == needed || step == 16 * MiB || step <= held / 100 * 8));
        std::size_t const most = greedy::next(needed, held);
        REQUIRE((most == needed || most == 1 || most <= held));
    }
}
