// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <support/every_schedule.hpp>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/growth.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::GiB;
using weir::KiB;
using weir::MiB;
namespace growth = weir::growth;

static_assert(growth::fixed<4096>::next(1, 0) == 4096);
static_assert(growth::exact::next(1, 0) == 1);
static_assert(growth::geometric<4096, 50, 1 << 20>::next(1, 0) == 4096);
static_assert(growth::paged<>::next(20 * MiB, 0) == 20 * MiB);
static_assert(std::is_same_v<growth::paged<>::apart, growth::geometric<>> &&
              std::is_same_v<growth::paged<64, 2 * MiB, 2 * MiB, growth::exact>::apart, growth::exact>);

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
        REQUIRE(growth::paged<>::next(needed, held) >= needed);
        REQUIRE(growth::by_holes<>::next(needed, held) >= needed);
        REQUIRE(growth::paged<1, 2 * MiB, 4 * MiB>::next(needed, held) >= needed);
    }
}

TEST_CASE("growth: paged asks for a chunk, or for what is needed if that is more") {
    using chunks = growth::paged<512, 2 * MiB, 64 * MiB>;
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
    CHECK(growth::paged<SIZE_MAX>::next(1, 100 * GiB) == 8 * MiB);
}

TEST_CASE("growth: paged cuts chunks of a share of what is held, in whole pages, within its bounds") {
    std::mt19937_64 draw(5);
    for (int i = 0; i < 3000; ++i) {
        std::size_t const held = static_cast<std::size_t>(draw() >> (draw() % 64));
        std::size_t const piece = growth::paged<512, 2 * MiB, 64 * MiB>::piece(held);
        REQUIRE(piece % (2 * MiB) == 0);
        REQUIRE(piece >= 2 * MiB);
        REQUIRE(piece <= 64 * MiB);
        REQUIRE((piece == 2 * MiB || piece <= held / 512));
        REQUIRE((piece == 64 * MiB || piece > held / 512 - (held / 512 < 2 * MiB ? 0 : 2 * MiB)));
        REQUIRE(growth::paged<512, 2 * MiB, 64 * MiB>::next(1, held) == piece);
    }
    CHECK(growth::paged<1>::piece(SIZE_MAX) == 64 * MiB);
}

TEST_CASE("growth: by_holes has three sizes of chunks, and the first of them says what a new pool gets") {
    using first = growth::paged<16, 8 * MiB, 64 * MiB, growth::exact>;
    using chunks = growth::by_holes<first, growth::paged<128, 4 * MiB, 32 * MiB>, growth::paged<512, 2 * MiB, 32 * MiB>>;
    static_assert(std::is_same_v<chunks::apart, growth::exact>);
    for (std::size_t held : {std::size_t{0}, 64 * MiB, 256 * MiB, 700 * MiB, 5 * GiB, 80 * GiB, SIZE_MAX}) {
        CAPTURE(held);
        CHECK(chunks::next(1, held) == first::next(1, held));
        CHECK(chunks::piece(held, weir::holes::never) == first::piece(held));
        CHECK(chunks::piece(held, weir::holes::earlier) == growth::paged<128, 4 * MiB, 32 * MiB>::piece(held));
        CHECK(chunks::piece(held, weir::holes::now) == growth::paged<512, 2 * MiB, 32 * MiB>::piece(held));
    }
    static_assert(chunks::moved_percent == 25 && growth::paged<>::moved_percent == 200);
    static_assert(growth::by_holes<first, first, first, 200>::moved_percent == 200);
    CHECK(growth::by_holes<>::piece(0, weir::holes::never) == 8 * MiB);
    CHECK(growth::by_holes<>::piece(0, weir::holes::earlier) == 32 * MiB);
    CHECK(growth::by_holes<>::piece(0, weir::holes::now) == 4 * MiB);
}

TEST_CASE("growth: paged holds little more than is needed, in a number of chunks that stays small") {
    std::size_t held = 0;
    int chunks = 0;
    for (std::size_t needed = 64 * KiB; needed < 100 * GiB; needed += MiB) {
        if (held < needed) {
            held += growth::paged<512, 2 * MiB, 64 * MiB>::next(needed - held, held);
            ++chunks;
        }
        REQUIRE(held - needed <= needed / 512 + 4 * MiB);
    }
    CHECK(chunks < 5000);
}

TEST_CASE("growth: a request that fails was never in use, and a paged pool moves free pages as before") {
    using mapped_pool = weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>,
                                   weir::reuse::immediate, growth::paged<512, 2 * MiB, 64 * MiB>>;
    support::every_schedule([] {
        for (bool const fails : {false, true}) {
            CAPTURE(fails);
            support::scoped_stream const stream;
            mapped_pool pool;
            void* const a = pool.try_allocate(stream, 20 * MiB);
            void* const b = pool.try_allocate(stream, 20 * MiB);
            void* const c = pool.try_allocate(stream, 20 * MiB);
            if (fails)
                CHECK_FALSE(pool.try_allocate(stream, 1024 * GiB));
            CHECK(pool.reserved_bytes() == 60 * MiB);
            pool.deallocate(stream, b, 20 * MiB);
            void* const d = pool.try_allocate(stream, 30 * MiB); // b is too small, and its pages pay
            CHECK(d);
            CHECK(pool.reserved_bytes() <= 72 * MiB);
            pool.deallocate(stream, a, 20 * MiB);
            pool.deallocate(stream, c, 20 * MiB);
            pool.deallocate(stream, d, 30 * MiB);
        }
    });
}

TEST_CASE("growth: the number of chunks rises as the logarithm of the footprint") {
    std::size_t held = 0;
    int chunks = 0;
    for (; held < 100 * GiB; ++chunks)
        held += growth::geometric<16 * MiB, 100, GiB>::next(MiB, held);
    CHECK(chunks < 16);
}
