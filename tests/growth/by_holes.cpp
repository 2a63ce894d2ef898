// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
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
    using first = growth::paged<16, 8 * MiB, 64 * MiB, growth::exact>;
    using chunks = growth::by_holes<first, growth::paged<128, 4 * MiB, 32 * MiB>, growth::paged<512, 2 * MiB, 32 * MiB>>;
    static_assert(std::is_same_v<chunks::apart, growth::exact>);
    for (std::size_t held : {std::size_t{0}, 64 * MiB, 256 * MiB, 700 * MiB, 5 * GiB, 80 * GiB, SIZE_MAX}) {
        CAPTURE(held);
        CHECK(chunks::next(1, held) == first::next(1, held));
        CHECK(chunks::piece(held, weir::base::holes::never) == first::piece(held));
        CHECK(chunks::piece(held, weir::base::holes::earlier) == growth::paged<128, 4 * MiB, 32 * MiB>::piece(held));
        CHECK(chunks::piece(held, weir::base::holes::now) == growth::paged<512, 2 * MiB, 32 * MiB>::piece(held));
    }
    static_assert(chunks::moved_percent == 25 && growth::paged<>::moved_percent == 200);
    static_assert(growth::by_holes<first, first, first, 200>::moved_percent == 200);
    CHECK(growth::by_holes<>::piece(0, weir::base::holes::never) == 8 * MiB);
    CHECK(growth::by_holes<>::piece(0, weir::base::holes::earlier) == 32 * MiB);
    CHECK(growth::by_holes<>::piece(0, weir::base::holes::now) == 4 * MiB);
}
