// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>

using support::interval_oracle;
using weir::GiB;
using weir::KiB;
using weir::MiB;
using weir::range;
namespace placement = weir::placement;
using by_size = placement::by_size<64 * KiB, placement::bins<256>, placement::best_fit<512>>;

static_assert(by_size::granularity == 256);
static_assert(by_size::rounded(1, 1) == 256 && by_size::rounded(64 * KiB, 64 * KiB) == 64 * KiB);
static_assert(by_size::rounded(64 * KiB + 1, 1) == 64 * KiB + 512 && by_size::rounded(1, 128 * KiB) == 64 * KiB + 512);
static_assert(by_size::rounded(0, 1) == 0 && by_size::rounded(0, 128 * KiB) == 0 && by_size::rounded(SIZE_MAX, 1) == 0);
static_assert(by_size::needs(1, 1, 2 * MiB) == 16 * KiB && by_size::needs(64 * KiB, 1, 2 * MiB) == 1 * MiB);
static_assert(by_size::needs(1 * MiB, 256, 2 * MiB) == 1 * MiB && by_size::needs(1, 1, 512) == 32 * KiB - 512);

TEST_CASE("by_size: the route shows in the rounded size") {
    for (std::size_t alignment = 1; alignment <= 1 * MiB; alignment *= 2)
        for (std::size_t bytes = 1; bytes <= 1 * MiB; bytes = bytes * 2 + 99) {
            bool const small_one = bytes <= 64 * KiB && alignment <= 64 * KiB;
            CHECK((by_size::rounded(bytes, alignment) <= 64 * KiB) == small_one);
        }
}

TEST_CASE("by_size: small blocks share a slab, large ones are split off") {
    by_size p;
    p.add({0, 4 * MiB});
    range const a = p.take(300, 1);
    range const b = p.take(300, 1);
    CHECK(b.offset == a.end());
    range const c = p.take(100 * KiB, 1);
    CHECK(c.bytes == 100 * KiB);
    range const d = p.take(10, 1 * MiB); // small, but aligned as large ones are
    CHECK(d.offset % MiB == 0);
    CHECK(d.bytes > 64 * KiB);
    p.give(a);
    p.give(c);
    p.give(b);
    p.give(d);
    CHECK(p.take(4 * MiB, 1) == range{0, 4 * MiB}); // the kept slab went back to make room
}

TEST_CASE("by_size: slabs return to the large part when they are whole, one a class is kept") {
    by_size p;
    p.add({0, 1 * MiB});
    std::vector<range> blocks;
    for (int n = 0; n < 640; ++n)
        blocks.push_back(p.take(256, 256)); // ten slabs
    for (range const block : blocks)
        p.give(block);
    CHECK(p.free_bytes() == 1 * MiB);
    CHECK(p.largest() == 1 * MiB - 16 * KiB); // all but the kept one are joined
    CHECK(p.remove({0, 1 * MiB}));
    CHECK_FALSE(p.remove({0, 1 * MiB}));
    CHECK_FALSE(p.take(1, 1));
}

TEST_CASE("by_size: a kept slab of one class makes room for another's and for large blocks") {
    by_size p;
    p.add({0, 16 * KiB});
    p.give(p.take(256, 1));
    CHECK(p.largest() == 1 * KiB);
    range const block = p.take(1024, 1);
    CHECK(block.bytes == 1024);
    CHECK_FALSE(p.take(256, 1));
    p.give(block);
    CHECK(p.take(16 * KiB, 16 * KiB).bytes == 0); // needs a slab of 256 KiB
    by_size q;
    q.add({0, 128 * KiB});
    q.give(q.take(1, 1));
    CHECK(q.take(128 * KiB, 1) == range{0, 128 * KiB});
}

TEST_CASE("by_size: what is lent serves an empty sibling") {
    by_size p;
    p.add({0, 4 * MiB});
    for (std::size_t const bytes : {std::size_t{1}, 300 * std::size_t{1}, 64 * KiB, 64 * KiB + 1, 1 * MiB})
        for (std::size_t alignment = 1; alignment <= 512 * KiB; alignment *= 8) {
            by_size q = p.sibling();
            range const lent = p.lend(bytes, alignment);
            REQUIRE(lent);
            q.add(lent);
            range const block = q.take(bytes, alignment);
            CHECK(block.bytes == by_size::rounded(bytes, alignment));
            q.give(block);
            p.absorb(q);
            CHECK(p.remove({0, 4 * MiB}));
            p.add({0, 4 * MiB});
        }
    CHECK_FALSE(p.lend(0, 1));
    CHECK_FALSE(p.lend(SIZE_MAX, 1));
}

TEST_CASE("by_size: a slab whose way back finds no host memory waits, and the give holds") {
    for (long k = 0; k < 6; ++k) {
        by_size p;
        p.add({0, 64 * MiB});
        // Slabs with live large blocks between them, so that each free slab is a range of its own.
        std::vector<range> blocks;
        std::vector<range> between;
        for (int n = 0; n < 200; ++n) {
            for (int m = 0; m < 64; ++m)
                blocks.push_back(p.take(256, 1));
            between.push_back(p.take(80 * KiB, 1));
        }
        for (range const block : blocks) {
            std::size_t const before = p.free_bytes();
            bool failed = false;
            try {
                support::failing_new const fails(k);
                p.give(block);
            } catch (std::bad_alloc const&) {
                failed = true;
            }
            if (failed) {
                CHECK(p.free_bytes() == before);
                p.give(block);
            }
            CHECK(p.free_bytes() >= before + 256);
        }
        for (range const block : between)
            p.give(block);
        CHECK(p.remove({0, 64 * MiB}));
    }
}

TEST_CASE("by_size: many small and large blocks over chunks, and all chunks come back") {
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        by_size p;
        interval_oracle oracle;
        std::vector<range> chunks;
        for (int n = 0; n < 20000; ++n) {
            if (random() % 16 < 9 || oracle.live() == 0) {
                std::size_t const bytes = random() % 3 == 0 ? 1 + random() % (2 * MiB) : 1 + random() % (8 * KiB);
                std::size_t const alignment = random() % 8 == 0 ? std::size_t{1} << random() % 20 : 256;
                range block = p.take(bytes, alignment);
                if (!block) { // as a pool does
                    range const chunk{
                        chunks.empty() ? 1 * GiB : chunks.back().end(),
                        weir::align_up(by_size::needs(bytes, alignment, 2 * MiB) + 16 * MiB, 2 * MiB)};
                    p.fence(chunk.offset);
                    p.add(chunk);
                    oracle.add(chunk);
                    chunks.push_back(chunk);
                    block = p.take(bytes, alignment);
                }
                REQUIRE(block);
                oracle.take(block, by_size::rounded(bytes, alignment), alignment);
            } else {
                p.give(oracle.give(random));
            }
        }
        CHECK(p.bookkeeping_bytes() <= 48 * oracle.live() + 64 * KiB);
        while (oracle.live() != 0)
            p.give(oracle.give(random));
        for (range const chunk : chunks)
            CHECK(p.remove(chunk));
        CHECK(p.free_bytes() == 0);
    }
}
