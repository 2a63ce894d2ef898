// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <weir/base/range.hpp>

using weir::base::range;

static_assert(!range{} && range{0, 1} && range{3, 4}.end() == 7);
static_assert(range{1, 2} == range{1, 2} && range{1, 2} != range{1, 3} && range{1, 2} != range{2, 2});

TEST_CASE("range: contains the bytes from its offset to its end") {
    range const r{100, 10};
    CHECK_FALSE(r.contains(99));
    CHECK(r.contains(100));
    CHECK(r.contains(109));
    CHECK_FALSE(r.contains(110));
    CHECK_FALSE(range{100, 0}.contains(100));
}

TEST_CASE("range: contains and overlaps agree with looking at each byte") {
    for (std::size_t a = 0; a < 6; ++a)
        for (std::size_t m = 0; m < 6; ++m)
            for (std::size_t b = 0; b < 6; ++b)
                for (std::size_t n = 0; n < 6; ++n) {
                    range const one{a, m};
                    range const other{b, n};
                    std::size_t shared = 0;
                    for (std::size_t x = 0; x < 12; ++x)
                        shared += one.contains(x) && other.contains(x);
                    CHECK(one.contains(other) == (n != 0 && shared == n));
                    CHECK(one.overlaps(other) == (shared != 0));
                    CHECK(other.overlaps(one) == (shared != 0));
                }
}

TEST_CASE("range: the end of the address space is no trap") {
    range const last{SIZE_MAX - 9, 9};
    CHECK(last.contains(SIZE_MAX - 1));
    CHECK_FALSE(last.contains(std::size_t{0}));
    CHECK(range{0, SIZE_MAX}.contains(last));
    CHECK_FALSE(last.contains(range{SIZE_MAX - 9, 10}));
    CHECK_FALSE(weir::base::inward({SIZE_MAX - 9, 9}, 16));
    CHECK_FALSE(weir::base::has_room({SIZE_MAX - 9, 9}, 1, 16));
}

TEST_CASE("range: in_registers changes nothing") {
    for (range const r : {range{}, range{0, 1}, range{7, 0}, range{SIZE_MAX - 5, 5}, range{std::size_t{1} << 40, 4096}})
        CHECK(in_registers(r) == r);
}

TEST_CASE("range: inward keeps whole units only") {
    for (std::size_t offset = 0; offset < 40; ++offset)
        for (std::size_t bytes = 0; bytes < 40; ++bytes) {
            range const r{offset, bytes};
            range const inside = weir::base::inward(r, 8);
            std::size_t units = 0;
            for (std::size_t unit = 0; unit < 12; ++unit)
                units += r.contains(range{unit * 8, 8});
            CHECK(inside.bytes == units * 8);
            CHECK((!inside || (r.contains(inside) && inside.offset % 8 == 0)));
        }
}

TEST_CASE("range: has_room agrees with trying each place") {
    for (std::size_t offset = 0; offset < 20; ++offset)
        for (std::size_t bytes = 0; bytes < 20; ++bytes)
            for (std::size_t alignment = 1; alignment <= 16; alignment *= 2)
                for (std::size_t wanted = 1; wanted < 20; wanted += 3) {
                    bool room = false;
                    for (std::size_t at = 0; at < 64; at += alignment)
                        room = room || range{offset, bytes}.contains(range{at, wanted});
                    CHECK(weir::base::has_room({offset, bytes}, wanted, alignment) == room);
                }
}
