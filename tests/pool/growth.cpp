// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <weir/base/size.hpp>
#include <weir/pool/growth.hpp>

using weir::GiB;
using weir::KiB;
using weir::MiB;
namespace growth = weir::growth;

static_assert(growth::fixed<4096>::next(1, 0) == 4096);
static_assert(growth::exact::next(1, 0) == 1);
static_assert(growth::geometric<4096, 50, 1 << 20>::next(1, 0) == 4096);

TEST_CASE("growth: fixed asks for one size, or for what is needed if that is more") {
    using chunks = growth::fixed<64 * KiB>;
    CHECK(chunks::next(1, 0) == 64 * KiB);
    CHECK(chunks::next(64 * KiB, 5 * GiB) == 64 * KiB);
    CHECK(chunks::next(64 * KiB + 1, 0) == 64 * KiB + 1);
    CHECK(chunks::next(SIZE_MAX, SIZE_MAX) == SIZE_MAX);
}

TEST_CASE("growth: exact asks for what is needed") {
    for (std::size_t needed : {std::size_t{1}, 4 * KiB, 3 * GiB, SIZE_MAX})
        for (std::size_t held : {std::size_t{0}, 7 * MiB, SIZE_MAX})
            CHECK(growth::exact::next(needed, held) == needed);
}

TEST_CASE("growth: geometric asks for a share of what is held, the first chunk at least") {
    using chunks = growth::geometric<2 * MiB, 50, 64 * MiB>;
    CHECK(chunks::next(1, 0) == 2 * MiB);
    CHECK(chunks::next(1, 4 * MiB) == 2 * MiB);
    CHECK(chunks::next(1, 100 * MiB) == 100 * MiB / 100 * 50);
    CHECK(chunks::next(30 * MiB, 4 * MiB) == 30 * MiB);
    CHECK(chunks::next(30 * MiB, 100 * MiB) == 100 * MiB / 100 * 50);
}

TEST_CASE("growth: geometric gives a large need just what it needs") {
    using chunks = growth::geometric<2 * MiB, 50, 64 * MiB>;
    CHECK(chunks::next(64 * MiB - 1, GiB) == GiB / 100 * 50);
    CHECK(chunks::next(64 * MiB, GiB) == 64 * MiB);
    CHECK(chunks::next(10 * GiB, 100 * GiB) == 10 * GiB);
}

TEST_CASE("growth: no policy asks for less than is needed, or overflows") {
    std::mt19937_64 draw(2);
    for (int i = 0; i < 3000; ++i) {
        std::size_t const needed = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const held = static_cast<std::size_t>(draw() >> (draw() % 64));
        REQUIRE(growth::exact::next(needed, held) >= needed);
        REQUIRE(growth::fixed<1 << 20>::next(needed, held) >= needed);
        std::size_t const step = growth::geometric<>::next(needed, held);
        REQUIRE(step >= needed);
        REQUIRE((step == needed || step == 16 * MiB || step <= held / 100 * 8));
        std::size_t const most = growth::geometric<1, 100, SIZE_MAX>::next(needed, held);
        REQUIRE(most >= needed);
        REQUIRE((most == needed || most == 1 || most <= held));
    }
}

TEST_CASE("growth: the number of chunks rises as the logarithm of the footprint") {
    std::size_t held = 0;
    int chunks = 0;
    for (; held < 100 * GiB; ++chunks)
        held += growth::geometric<16 * MiB, 100, GiB>::next(MiB, held);
    CHECK(chunks < 16);
}
