// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <support/growth_numbers.hpp>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

using weir::GiB;
using weir::KiB;
using weir::MiB;
namespace growth = weir::growth;

static_assert(growth::paged<>::next(20 * MiB, 0) == 20 * MiB);
static_assert(std::is_same_v<growth::paged<>::apart, growth::geometric<>> &&
              std::is_same_v<support::paged_of<64, 2 * MiB, 2 * MiB, growth::exact>::apart, growth::exact>);

TEST_CASE("paged: asks for a chunk, or for what is needed if that is more") {
    using chunks = support::paged_of<512, 2 * MiB, 64 * MiB>;
    CHECK(chunks::piece(0) == 2 * MiB);
    CHECK(chunks::next(1, 0) == 2 * MiB);
    CHECK(chunks::next(2 * MiB, 0) == 2 * MiB);
    CHECK(chunks::next(2 * MiB + 1, 0) == 2 * MiB + 1);
    CHECK(chunks::next(1, 2 * GiB - 512) == 2 * MiB);
    CHECK(chunks::next(1, 2 * GiB) == 4 * MiB); // a 512th is two pages by then
    CHECK(chunks::next(1, 3 * GiB) == 6 * MiB);
    CHECK(chunks::next(7 * MiB, 3 * GiB) == 7 * MiB);
    CHECK(chunks::next(1, 31 * GiB) == 62 * MiB);
    CHECK(chunks::next(1, 32 * GiB) == 64 * MiB);
    CHECK(chunks::next(1, 80 * GiB) == 64 * MiB);
    CHECK(chunks::next(SIZE_MAX, SIZE_MAX) == SIZE_MAX);
    CHECK(growth::paged<>::next(1, 0) == 8 * MiB);
    CHECK(growth::paged<>::next(1, 384 * MiB) == 24 * MiB);
    CHECK(growth::paged<>::next(1, 100 * GiB) == 64 * MiB);
    CHECK(support::paged_of<SIZE_MAX>::next(1, 100 * GiB) == 8 * MiB);
}

TEST_CASE("paged: cuts chunks of a share of what is held, in whole pages, within its bounds") {
    std::mt19937_64 draw(5);
    for (int i = 0; i < 3000; ++i) {
        std::size_t const held = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const piece = support::paged_of<512, 2 * MiB, 64 * MiB>::piece(held);
        REQUIRE(piece % (2 * MiB) == 0);
        REQUIRE(piece >= 2 * MiB);
        REQUIRE(piece <= 64 * MiB);
        REQUIRE((piece == 2 * MiB || piece <= held / 512));
        REQUIRE((piece == 64 * MiB || piece > held / 512 - (held / 512 < 2 * MiB ? 0 : 2 * MiB)));
        REQUIRE(support::paged_of<512, 2 * MiB, 64 * MiB>::next(1, held) == piece);
    }
    CHECK(support::paged_of<1>::piece(SIZE_MAX) == 64 * MiB);
}

TEST_CASE("paged: holds little more than is needed, in a number of chunks that stays small") {
    std::size_t held = 0;
    int chunks = 0;
    for (std::size_t needed = 64 * KiB; needed < 100 * GiB; needed += MiB) {
        if (held < needed) {
            held += support::paged_of<512, 2 * MiB, 64 * MiB>::next(needed - held, held);
            ++chunks;
        }
        REQUIRE(held - needed <= needed / 512 + 4 * MiB);
    }
    CHECK(chunks < 5000);
}
