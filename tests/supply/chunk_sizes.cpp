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
#include <weir/supply/chunk_sizes.hpp>

using weir::base::holes;
using weir::GiB;
using weir::MiB;
namespace growth = weir::growth;

namespace {

constexpr std::size_t page = 2 * MiB;
using paged = support::paged_of<64, 4 * MiB, 32 * MiB, growth::fixed<10 * MiB>>;
using cut = weir::supply::chunk_sizes<paged, page>;
using by_holes = support::by_holes_of<support::paged_of<16, 8 * MiB, 64 * MiB>, support::paged_of<24, 32 * MiB, 64 * MiB>,
                                      support::paged_of<128, 4 * MiB, 32 * MiB>, 40>;

cut of(std::size_t held, std::size_t limit = SIZE_MAX) {
    return cut{held, limit, true, holes::never};
}

} // namespace

static_assert(cut::moved_percent() == 200 && weir::supply::chunk_sizes<by_holes, page>::moved_percent() == 40);
static_assert(weir::supply::chunk_sizes<growth::exact, page>::moved_percent() == 200);

TEST_CASE("chunk_sizes: chunks have a share of what is held with what is got, within their bounds") {
    CHECK(of(0).next(2 * MiB) == 4 * MiB);
    CHECK(of(0).piece_of(100 * MiB) == 4 * MiB);
    CHECK(of(500 * MiB).piece_of(524 * MiB) == 16 * MiB);
    CHECK(of(100 * GiB).piece_of(1 * GiB) == 32 * MiB);
    CHECK(of(100 * GiB).piece_of(2 * MiB) == 2 * MiB); // not more than all
    CHECK(of(100 * GiB).next(2 * MiB) == 32 * MiB);
    CHECK(of(100 * GiB).next(50 * MiB) == 50 * MiB);
}

TEST_CASE("chunk_sizes: below a limit chunks are small beside it, and whole pages") {
    CHECK(of(100 * GiB, 200 * GiB).piece_of(1 * GiB) == 32 * MiB);
    CHECK(of(1 * GiB, 5 * GiB).piece_of(1 * GiB) == 10 * MiB);
    CHECK(of(0, 5 * MiB).piece_of(4 * MiB) == 2 * MiB);
    CHECK(of(0, 5 * MiB).next(2 * MiB) == 2 * MiB);
}

TEST_CASE("chunk_sizes: no request makes more than a thousand chunks or so") {
    CHECK(of(0).piece_of(100 * GiB) == 100 * MiB);
    CHECK(of(0, 1 * GiB).piece_of(16 * GiB) == 16 * MiB);
    CHECK(of(SIZE_MAX - 5).piece_of(64 * MiB) == 32 * MiB); // no sum wraps
    std::size_t const largest = SIZE_MAX / page * page;
    CHECK(of(0).piece_of(largest) >= largest / 1024);
}

TEST_CASE("chunk_sizes: holes say which policy cuts, and what is got without need is cut as among holes once there were any") {
    using sizes = weir::supply::chunk_sizes<by_holes, page>;
    std::size_t const held = 3 * GiB;
    for (holes const seen : {holes::never, holes::earlier, holes::now}) {
        sizes const all{held, SIZE_MAX, true, seen};
        CHECK(all.piece_of(128 * MiB) == by_holes::piece(held + 128 * MiB, seen));
        CHECK(all.next(2 * MiB) == by_holes::piece(held + 2 * MiB, seen == holes::never ? holes::never : holes::now));
    }
}

TEST_CASE("chunk_sizes: where nothing grows in place, and for other policies, a request is one chunk") {
    cut const apart{1 * GiB, SIZE_MAX, false, holes::now};
    CHECK(apart.next(2 * MiB) == 10 * MiB);
    CHECK(apart.piece_of(1 * GiB) == 1 * GiB);
    weir::supply::chunk_sizes<growth::fixed<6 * MiB>, page> const other{1 * GiB, 5 * GiB, true, holes::now};
    CHECK(other.next(2 * MiB) == 6 * MiB);
    CHECK(other.piece_of(1 * GiB) == 1 * GiB);
    CHECK(weir::supply::chunk_sizes<growth::fixed<3 * MiB>, page>().next(2 * MiB) == 4 * MiB);
    CHECK(other.next(SIZE_MAX) == 0); // nobody has as much
}

TEST_CASE("chunk_sizes: under a limit a chunk has what blocks fill of it") {
    CHECK(cut().filled(16 * MiB, 6 * MiB, 6 * MiB) == 16 * MiB); // no limit
    auto const filled = [](std::size_t room, std::size_t bytes, std::size_t block, std::size_t least = 0) {
        return cut{100 * MiB, 100 * MiB + room, false, holes::never}.filled(bytes, least == 0 ? block : least, block);
    };
    CHECK(filled(1 * GiB, 16 * MiB, 6 * MiB) == 12 * MiB);
    CHECK(filled(1 * GiB, 16 * MiB, 5 * MiB) == 16 * MiB); // a MiB of the last page is left
    CHECK(filled(1 * GiB, 4 * MiB, 3 * MiB) == 4 * MiB);
    CHECK(filled(50 * MiB, 16 * MiB, 5 * MiB) == 10 * MiB); // nothing may be left
    CHECK(filled(51 * MiB, 40 * MiB, 5 * MiB) == 40 * MiB);
    CHECK(filled(12 * MiB, 4 * MiB, 3 * MiB) == 6 * MiB); // the policy said less
    CHECK(filled(1 * MiB, 4 * MiB, 3 * MiB) == 4 * MiB);  // there is no room in any case
    CHECK(filled(24 * MiB, 8 * MiB, 3 * MiB, 8 * MiB) == 12 * MiB); // a slab for small blocks needs more than they fill evenly
    CHECK(filled(26 * MiB, 8 * MiB, 3 * MiB, 8 * MiB) == 10 * MiB); // nor may the rest be used
}

TEST_CASE("chunk_sizes: what is asked for suffices, and its chunks are whole pages of no more than that") {
    std::mt19937_64 draw(3);
    for (int n = 0; n < 20000; ++n) {
        std::size_t const held = (draw() >> draw() % 64) / page * page;
        std::size_t const bytes = ((draw() >> (24 + draw() % 24)) / page + 1) * page;
        std::size_t const limit = draw() % 2 == 0 ? SIZE_MAX : draw() >> draw() % 64;
        weir::supply::chunk_sizes<by_holes, page> const sizes{held, limit, draw() % 8 != 0, static_cast<holes>(draw() % 3)};
        REQUIRE(sizes.next(bytes) >= bytes);
        REQUIRE(sizes.next(bytes) % page == 0);
        std::size_t const piece = sizes.piece_of(bytes);
        REQUIRE(piece > 0);
        REQUIRE(piece <= bytes);
        REQUIRE(piece % page == 0);
        REQUIRE((bytes - 1) / piece < 1024);
    }
}
