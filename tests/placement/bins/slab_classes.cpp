// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <memory>
#include <type_traits>
#include <weir/placement/bins/slab_classes.hpp>

TEST_CASE_TEMPLATE("slab_classes: sizes rise, waste at most an eighth, and are served by their own class", Unit,
                   std::integral_constant<std::size_t, 16>, std::integral_constant<std::size_t, 256>,
                   std::integral_constant<std::size_t, 65536>) {
    constexpr std::size_t unit = Unit::value;
    using classes = weir::placement::detail::slab_classes<unit>;
    static_assert(classes::block_bytes(0) == unit);
    static_assert(classes::block_bytes(classes::count - 1) == classes::largest_block_bytes);
    for (unsigned in = 0; in < classes::count; ++in) {
        std::size_t const bytes = classes::block_bytes(in);
        CHECK(bytes % unit == 0);
        CHECK(classes::class_of(bytes) == in);
        CHECK(classes::class_of(bytes - unit + 1) == in);
        CHECK(classes::block_bytes_of(in) == bytes);
        CHECK(classes::slab_bytes_of(in) == classes::slab_bytes(in));
        if (in > 0) {
            CHECK(bytes > classes::block_bytes(in - 1));
            CHECK(classes::class_of(classes::block_bytes(in - 1) + 1) == in);
            if (bytes > 8 * unit) // the most that is asked too little for this class
                CHECK((bytes - classes::block_bytes(in - 1)) * 8 <= bytes);
        }
    }
}

TEST_CASE("slab_classes: a class is as aligned as the sizes that it serves") {
    using classes = weir::placement::detail::slab_classes<256>;
    for (std::size_t alignment = 256; alignment <= classes::largest_block_bytes; alignment *= 2)
        for (std::size_t bytes = alignment; bytes <= classes::largest_block_bytes; bytes += alignment)
            CHECK(classes::block_bytes(classes::class_of(bytes)) % alignment == 0);
}

TEST_CASE("slab_classes: the grain rounds a size to its class's") {
    using classes = weir::placement::detail::slab_classes<256>;
    for (std::size_t bytes = 1; bytes <= classes::largest_block_bytes; bytes += bytes < 32768 ? 1 : 255) {
        CHECK(weir::base::is_power_of_two(classes::grain(bytes)));
        CHECK(weir::base::align_up(bytes, classes::grain(bytes)) == classes::block_bytes(classes::class_of(bytes)));
    }
    CHECK(weir::base::align_up(0, classes::grain(0)) == 0);
}

TEST_CASE("slab_classes: a slab is a power of two with 16 to 64 blocks and little tail") {
    using classes = weir::placement::detail::slab_classes<256>;
    for (unsigned in = 0; in < classes::count; ++in) {
        std::size_t const slab = classes::slab_bytes(in);
        std::size_t const blocks = slab / classes::block_bytes(in);
        CHECK(weir::base::is_power_of_two(slab));
        CHECK(slab >= 16 * weir::KiB);
        CHECK(blocks >= 16);
        CHECK(blocks <= 64);
        CHECK(weir::base::count_bits(classes::all_blocks(in)) == blocks);
        CHECK(((classes::all_blocks(in) + 1) & classes::all_blocks(in)) == 0); // the lowest bits
        CHECK(classes::tail_bytes(in) == slab - blocks * classes::block_bytes(in));
        CHECK(classes::tail_bytes(in) < slab / 16);
    }
}

TEST_CASE("slab_classes: the table that the compiler makes is the one that a program makes") {
    using classes = weir::placement::detail::slab_classes<256>;
    std::unique_ptr<classes::table_type> const made(new classes::table_type);
    classes::table_type const& table = *made;
    for (unsigned in = 0; in < classes::count; ++in) {
        CHECK(table.block_bytes[in] == classes::block_bytes_of(in));
        CHECK(table.slab_bytes[in] == classes::slab_bytes_of(in));
        CHECK(table.all_blocks[in] == classes::all_blocks(in));
        CHECK(table.tail_bytes[in] == classes::tail_bytes(in));
        CHECK((classes::slab_bytes(in) / 256 * table.reciprocal[in] >> 32) == classes::slab_bytes(in) / classes::block_bytes(in));
    }
}

TEST_CASE_TEMPLATE("slab_classes: the reciprocal finds every block of every slab", Unit,
                   std::integral_constant<std::size_t, 16>, std::integral_constant<std::size_t, 256>,
                   std::integral_constant<std::size_t, 65536>) {
    using classes = weir::placement::detail::slab_classes<Unit::value>;
    for (unsigned in = 0; in < classes::count; ++in)
        for (unsigned block = 0; block < classes::slab_bytes(in) / classes::block_bytes(in); ++block)
            CHECK(classes::block_index(in, block * classes::block_bytes(in)) == block);
}
