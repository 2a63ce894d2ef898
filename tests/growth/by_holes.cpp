// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <support/growth_numbers.hpp>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

using weir::GiB;
using weir::MiB;
namespace growth = weir::growth;

TEST_CASE("by_holes: has three sizes of chunks, and the first of them says what a new pool gets") {
    using first = support::paged_of<16, 8 * MiB, 64 * MiB, growth::exact>;
    using second = support::paged_of<128, 4 * MiB, 32 * MiB>;
    using third = support::paged_of<512, 2 * MiB, 32 * MiB>;
    using chunks = support::by_holes_of<first, second, third>;
    static_assert(std::is_same_v<chunks::apart, growth::exact>);
    for (std::size_t held : {std::size_t{0}, 64 * MiB, 256 * MiB, 700 * MiB, 5 * GiB, 80 * GiB, SIZE_MAX}) {
        CAPTURE(held);
        CHECK(chunks::next(1, held) == first::next(1, held));
        CHECK(chunks::piece(held, weir::base::holes::never) == first::piece(held));
        CHECK(chunks::piece(held, weir::base::holes::earlier) == second::piece(held));
        CHECK(chunks::piece(held, weir::base::holes::now) == third::piece(held));
    }
    static_assert(chunks::moved_percent == 25 && growth::paged<>::moved_percent == 200);
    static_assert(support::by_holes_of<first, first, first, 200>::moved_percent == 200);
    CHECK(growth::by_holes<>::piece(0, weir::base::holes::never) == 8 * MiB);
    CHECK(growth::by_holes<>::piece(0, weir::base::holes::earlier) == 32 * MiB);
    CHECK(growth::by_holes<>::piece(0, weir::base::holes::now) == 4 * MiB);
}
