// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

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

TEST_CASE("growth contract: no policy asks for less than is needed, or overflows") {
    std::mt19937_64 draw(2);
    for (int i = 0; i < 3000; ++i) {
        std::size_t const needed = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const held = static_cast<std::size_t>(draw() >> (draw() % 64));
        REQUIRE(growth::exact::next(needed, held) >= needed);
        REQUIRE(growth::fixed<1 << 20>::next(needed, held) >= needed);
        std::size_t const step = growth::geometric<>::next(needed, held);
        REQUIRE(step >= needed);
        REQUIRE((step == needed || step == 16 * MiB || step <= held / 100 * 8));
        std::size_t const most = support::geometric_of<1, 100, SIZE_MAX>::next(needed, held);
        REQUIRE(most >= needed);
        REQUIRE((most == needed || most == 1 || most <= held));
        REQUIRE(growth::paged<>::next(needed, held) >= needed);
        REQUIRE(growth::by_holes<>::next(needed, held) >= needed);
        REQUIRE(support::paged_of<1, 2 * MiB, 4 * MiB>::next(needed, held) >= needed);
    }
}
