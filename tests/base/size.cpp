// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <initializer_list>
#include <weir/base/size.hpp>

using namespace weir;
using namespace weir::base;

static_assert(KiB == 1024 && MiB == 1024 * KiB && GiB == 1024 * MiB);
static_assert(align_up(1, 256) == 256 && align_down(257, 256) == 256 && is_aligned(512, 256) && !is_aligned(8, 16));
static_assert(floor_log2(1) == 0 && ceil_log2(1) == 0 && lowest_bit(12) == 2 && count_bits(255) == 8);
static_assert(power_of_two_above(5) == 8 && natural_alignment(24) == 8 && with_slack(10, 16, 4) == 22);

TEST_CASE("size: powers of two are told from other numbers") {
    CHECK_FALSE(is_power_of_two(0));
    for (unsigned log2 = 0; log2 < 64; ++log2) {
        std::size_t const power = std::size_t{1} << log2;
        CHECK(is_power_of_two(power));
        CHECK(is_power_of_two(power + 1) == (power == 1));
        CHECK(is_power_of_two(power - 1) == (power == 2));
    }
}

TEST_CASE("size: overflow of sums and products is seen at the edge") {
    CHECK_FALSE(add_overflows(0, SIZE_MAX));
    CHECK_FALSE(add_overflows(SIZE_MAX - 1, 1));
    CHECK(add_overflows(SIZE_MAX, 1));
    CHECK(add_overflows(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1));
    CHECK_FALSE(multiply_overflows(0, SIZE_MAX));
    CHECK_FALSE(multiply_overflows(SIZE_MAX, 0));
    CHECK_FALSE(multiply_overflows(SIZE_MAX, 1));
    CHECK(multiply_overflows(SIZE_MAX, 2));
    CHECK_FALSE(multiply_overflows(SIZE_MAX / 8, 8));
    CHECK(multiply_overflows(SIZE_MAX / 8 + 1, 8));
}

TEST_CASE("size: rounding is the nearest multiple, and 0 where that does not fit") {
    for (std::size_t alignment = 1; alignment <= 4096; alignment *= 2)
        for (std::size_t x = 0; x < 3 * alignment; x += 1 + alignment / 16) {
            CHECK(align_up(x, alignment) == (x + alignment - 1) / alignment * alignment);
            CHECK(align_down(x, alignment) == x / alignment * alignment);
            CHECK(is_aligned(x, alignment) == (x % alignment == 0));
        }
    CHECK(align_up(SIZE_MAX, 1) == SIZE_MAX);
    CHECK(align_up(SIZE_MAX, 2) == 0);
    CHECK(align_up(SIZE_MAX - 255, 256) == SIZE_MAX - 255);
    CHECK(align_up(SIZE_MAX - 254, 256) == 0);
    CHECK(align_up(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1) == SIZE_MAX / 2 + 1);
    CHECK(align_up(SIZE_MAX / 2 + 2, SIZE_MAX / 2 + 1) == 0);
}

TEST_CASE("size: a choice without a branch is that with one") {
    for (std::size_t a : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, SIZE_MAX})
        for (std::size_t b : {std::size_t{0}, std::size_t{7}, SIZE_MAX - 1, SIZE_MAX}) {
            CHECK(choose(true, a, b) == a);
            CHECK(choose(false, a, b) == b);
        }
}

TEST_CASE("size: logarithms and bits agree with counting") {
    for (unsigned log2 = 0; log2 < 64; ++log2) {
        std::uint64_t const power = std::uint64_t{1} << log2;
        CHECK(floor_log2(power) == log2);
        CHECK(ceil_log2(power) == log2);
        CHECK(lowest_bit(power) == log2);
        CHECK(lowest_bit(~std::uint64_t{0} << log2) == log2);
        CHECK(count_bits(power - 1) == log2);
        CHECK(count_bits(~(power - 1)) == 64 - log2);
        CHECK(natural_alignment(power) == power);
        CHECK(natural_alignment(~std::uint64_t{0} << log2) == power);
        CHECK(power_of_two_above(power) == power);
        if (log2 > 1) {
            CHECK(floor_log2(power - 1) == log2 - 1);
            CHECK(ceil_log2(power - 1) == log2);
            CHECK(floor_log2(power + 1) == log2);
            CHECK(power_of_two_above(power - 1) == power);
        }
        if (log2 > 0 && log2 < 63) {
            CHECK(ceil_log2(power + 1) == log2 + 1);
            CHECK(power_of_two_above(power + 1) == 2 * power);
        }
    }
    CHECK(power_of_two_above(SIZE_MAX / 2 + 2) == 0);
    CHECK(natural_alignment(0) == 0);
    CHECK(count_bits(0) == 0);
    CHECK(count_bits(0xF0F0F0F0F0F0F0F0u) == 32);
}

TEST_CASE("size: slack lets a block be aligned wherever a range starts") {
    for (std::size_t alignment = 1; alignment <= 1024; alignment *= 4)
        for (std::size_t base = 1; base <= 1024; base *= 4) {
            std::size_t const bytes = with_slack(100, alignment, base);
            for (std::size_t start = 0; start < 4096; start += base)
                CHECK(align_up(start, alignment) + 100 <= start + bytes);
        }
    CHECK(with_slack(0, 256, 1) == 0);
    CHECK(with_slack(SIZE_MAX, 1, 1) == SIZE_MAX);
    CHECK(with_slack(SIZE_MAX, 2, 1) == 0);
}
