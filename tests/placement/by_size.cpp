// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
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
using weir::base::range;
namespace placement = weir::placement;
using by_size = placement::by_size<64 * KiB, placement::bins<256>, placement::best_fit<512>>;

static_assert(by_size::granularity == 256);
static_assert(by_size::rounded(1, 1) == 256 && by_size::rounded(64 * KiB, 64 * KiB) == 64 * KiB);
static_assert(by_size::rounded(64 * KiB + 1, 1) == 64 * KiB + 512 && by_size::rounded(1, 128 * KiB) == 64 * KiB + 512);
static_assert(by_size::rounded(0, 1) == 0 && by_size::rounded(0, 128 * KiB) == 0 && by_size::rounded(SIZE_MAX, 1) == 0);
using uneven = weir::placement::by_size<4 * KiB, weir::placement::bins<256>, weir::placement::best_fit<16 * KiB>>;
static_assert(uneven::granularity == 256 && uneven::rounded(1 * KiB, 1) == 1 * KiB && uneven::rounded(4 * KiB + 1, 1) == 16 * KiB);
static_assert(by_size::needs(1, 1, 2 * MiB) == 16 * KiB && by_size::needs(64 * KiB, 1, 2 * MiB) == 1 * MiB);
static_assert(by_size::needs(1 * MiB, 256, 2 * MiB) == 1 * MiB && by_size::needs(1, 1, 512) == 32 * KiB - 512);

TEST_CASE("by_size: the route shows in the rounded size") {
    for (std::size_t alignment = 1; alignment <= 1 * MiB; alignment *= 2)
        for (std::size_t bytes = 1; bytes <= 1 * MiB; bytes = bytes * 2 + 99) {
            bool const small_one = bytes <= 64 * KiB && alignment <= 64 * KiB;
            CHECK((by_size::rounded(bytes, alignment) <= 64 * KiB) == small_one);
            if (small_one)
                CHECK(by_size::rounded(bytes, alignment) == weir::placement::bins<>::rounded(bytes, alignment));
            else if (bytes > 64 * KiB)
                CHECK(by_size::rounded(bytes, alignment) == weir::placement::best_fit<>::rounded(bytes, alignment));
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

TEST_CASE("by_size: at hand are large blocks and those of slabs of that size, and no slab is cut") {
    by_size p;
    p.add({0, 4 * MiB});
    CHECK_FALSE(p.take_at_hand(300, 1));
    range const a = p.take(300, 1);
    std::size_t const splinters = p.splinter_bytes();
    range const b = p.take_at_hand(300, 1);
    CHECK(b.bytes == a.bytes);
    CHECK(p.splinter_bytes() == splinters - b.bytes);
    CHECK_FALSE(p.take_at_hand(3000, 1));
    CHECK_FALSE(p.take_at_hand(0, 1));
    range const c = p.take_at_hand(64 * KiB + 1, 1);
    CHECK(c.bytes > 64 * KiB);
    range const d = p.take_at_hand(300, 128 * KiB); // small, but aligned as large ones are
    CHECK(d.bytes > 64 * KiB);
    for (range const each : {a, b, c, d})
        p.give(each);
    CHECK(p.remove({0, 4 * MiB}));
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
                        weir::base::align_up(by_size::needs(bytes, alignment, 2 * MiB) + 16 * MiB, 2 * MiB)};
                    p.fence(chunk);
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

TEST_CASE("by_size: eight slabs are lent where they lie side by side, else four, two or one") {
    constexpr std::size_t slab = 16 * KiB; // of blocks of 256 bytes
    by_size p;
    p.add({1 * GiB, 16 * slab});
    range const eight = p.lend(1, 1);
    CHECK(eight.bytes == 8 * slab);
    CHECK(eight.offset % slab == 0);
    CHECK(p.lend(256, 256).bytes == 8 * slab);
    CHECK_FALSE(p.lend(1, 1));
    CHECK(p.free_bytes() == 0);
    for (std::size_t slabs = 1; slabs < 9; ++slabs) {
        CAPTURE(slabs);
        by_size q;
        q.add({1 * GiB, slabs * slab});
        std::size_t left = slabs;
        for (std::size_t const each : {8u, 4u, 2u, 1u})
            if (left >= each) {
                CHECK(q.lend(1, 1).bytes == each * slab);
                left -= each;
            }
        CHECK_FALSE(q.lend(1, 1));
        CHECK(q.free_bytes() == 0);
    }
}

TEST_CASE("by_size: slabs that lie apart are lent one by one, each at a multiple of its size") {
    constexpr std::size_t slab = 16 * KiB;
    by_size p;
    std::vector<std::size_t> places;
    for (std::size_t n = 0; n < 20; ++n) { // 512 bytes short of two slabs, wherever they start
        p.add({1 * GiB + n * 64 * KiB + n * 512, 2 * slab - 512});
        places.push_back(1 * GiB + n * 64 * KiB);
    }
    std::size_t count = 0;
    for (range each = p.lend(256, 1); each; each = p.lend(256, 1)) {
        CHECK(each.bytes == slab);
        CHECK(each.offset % slab == 0);
        ++count;
    }
    CHECK(count == 20);
}

TEST_CASE("by_size: for a large block, and for one that is aligned as such, just what it needs is lent") {
    by_size p;
    p.add({1 * GiB, 16 * MiB});
    CHECK(p.lend(64 * KiB + 1, 1).bytes == 64 * KiB + 512);
    CHECK(p.lend(1, 128 * KiB).bytes == by_size::rounded(1, 128 * KiB));
    CHECK(p.lend(1 * MiB, 256).bytes == 1 * MiB);
    CHECK(p.lend(64 * KiB, 64 * KiB).bytes == 8 * MiB); // eight slabs of 1 MiB
}

TEST_CASE("by_size: slabs that are kept whole are given up to be lent") {
    by_size p;
    p.add({1 * GiB, 16 * KiB});
    p.give(p.take(256, 1)); // its slab is kept
    CHECK(p.lend(256, 1) == range{1 * GiB, 16 * KiB});
    CHECK(p.free_bytes() == 0);
}

TEST_CASE("by_size: what is lent comes back whole, however it was used") {
    for (unsigned seed = 0; seed < 4; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        by_size p;
        range const chunk{1 * GiB, 8 * MiB};
        p.fence(chunk);
        p.add(chunk);
        for (int turn = 0; turn < 40; ++turn) {
            std::vector<by_size> others;
            std::vector<range> blocks;
            for (int n = 0; n < 6; ++n) {
                std::size_t const bytes = 1 + random() % (random() % 4 == 0 ? 300 * KiB : 8 * KiB);
                std::size_t const alignment = std::size_t{1} << random() % 14;
                range const stock = p.lend(bytes, alignment);
                others.push_back(p.sibling());
                if (!stock)
                    continue;
                others.back().add(stock);
                std::size_t const before = others.back().free_bytes();
                for (int m = 0; m < 20; ++m)
                    if (range const block = others.back().take(bytes, alignment))
                        blocks.push_back(block);
                CHECK(blocks.size() != 0);
                CHECK(others.back().free_bytes() <= before);
            }
            for (by_size& each : others)
                p.absorb(each);
            std::shuffle(blocks.begin(), blocks.end(), random);
            for (range const& each : blocks)
                p.give(each);
            range whole;
            p.for_each_free(512, [&](range each) { whole = each; });
            REQUIRE(whole == chunk);
        }
        CHECK(p.free_bytes() == chunk.bytes);
        CHECK(p.remove(chunk));
    }
}

TEST_CASE("by_size: knows what is free before and after an address, but not in slabs") {
    by_size p;
    CHECK(p.free_before(1 * GiB) == 0);
    CHECK(p.free_after(1 * GiB) == 0);
    p.add({1 * GiB, 1 * MiB});
    CHECK(p.free_after(1 * GiB) == 1 * MiB);
    CHECK(p.free_before(1 * GiB + 1 * MiB) == 1 * MiB);
    range const small_block = p.take(256, 1);
    CHECK(p.free_after(1 * GiB) == 0);
    CHECK(p.free_after(1 * GiB + 16 * KiB) == 1 * MiB - 16 * KiB);
    CHECK(p.free_before(1 * GiB + 1 * MiB) == 1 * MiB - 16 * KiB);
    p.give(small_block); // the slab is whole, and kept
    CHECK(p.free_after(1 * GiB) == 0);
    p.fence({1 * GiB + 1 * MiB, 1 * MiB});
    CHECK(p.free_before(1 * GiB + 1 * MiB) == 0);
}

TEST_CASE("by_size: visits the large part's free ranges, kept slabs among them, and none with a live block") {
    by_size p;
    std::vector<range> found;
    auto const visit = [&](std::size_t least) {
        found.clear();
        p.for_each_free(least, [&](range each) { found.push_back(each); });
    };
    visit(0);
    CHECK(found.empty());
    p.add({1 * GiB, 1 * MiB});
    range const block = p.take(256, 1);
    visit(0);
    CHECK(found == std::vector<range>{{1 * GiB + 16 * KiB, 1 * MiB - 16 * KiB}});
    visit(1 * MiB);
    CHECK(found.empty());
    p.give(block);
    visit(0);
    CHECK(found == std::vector<range>{{1 * GiB, 1 * MiB}}); // the kept slab joined
    CHECK(p.free_bytes() == 1 * MiB);
    visit(1 * MiB);
    CHECK(found.size() == 1);
    visit(1 * MiB + 1);
    CHECK(found.empty());
}

TEST_CASE("by_size: removes out of the large part's free range that starts at an address") {
    by_size p;
    CHECK_FALSE(p.remove({1 * GiB, 4096}, 1 * GiB));
    p.add({1 * GiB, 1 * MiB});
    CHECK_FALSE(p.remove({1 * GiB, 4096}, 1 * GiB + 4096));
    CHECK(p.remove({1 * GiB + 512 * KiB, 64 * KiB}, 1 * GiB));
    CHECK(p.free_after(1 * GiB) == 512 * KiB);
    CHECK(p.free_after(1 * GiB + 576 * KiB) == 448 * KiB);
    // A kept slab is none of its bytes until it was surrendered.
    p.give(p.take(256, 1));
    std::size_t const slab = p.free_after(1 * GiB) == 512 * KiB ? 1 * GiB + 576 * KiB : 1 * GiB;
    CHECK_FALSE(p.remove({slab, 16 * KiB}, slab));
    p.for_each_free(512, [](range) {});
    CHECK(p.remove({slab, 16 * KiB}, slab));
    CHECK(p.free_bytes() == 1 * MiB - 64 * KiB - 16 * KiB);
}

TEST_CASE("by_size: where the host has no memory to visit, no byte is lost") {
    if (!support::host_memory_can_fail)
        return;
    auto const scene = [] {
        by_size p;
        std::vector<range> blocks;
        for (std::size_t n = 0; n < 16; ++n) { // as many ranges as the large part has room for at first
            p.fence({1 * GiB + n * MiB, 1 * MiB});
            p.add({1 * GiB + n * MiB, 1 * MiB});
        }
        for (std::size_t bytes = 256; bytes <= 64 * KiB; bytes *= 2)
            blocks.push_back(p.take(bytes, 1));
        for (range const& each : blocks)
            p.give(each); // a slab of each class is kept
        return p;
    };
    support::each_failure(
        scene, [](by_size& p) { p.for_each_free(512, [](range) {}); },
        [](by_size& p) {
            CHECK(p.free_bytes() == 16 * MiB);
            std::size_t sum = 0;
            p.for_each_free(0, [&](range each) { sum += each.bytes; });
            CHECK(sum == 16 * MiB);
            for (std::size_t n = 0; n < 16; ++n)
                CHECK(p.remove({1 * GiB + n * MiB, 1 * MiB}));
        });
}

TEST_CASE("by_size: squeezed, a small block comes without a slab and goes back where it was") {
    by_size p;
    p.add({1 * GiB, 70 * KiB});
    CHECK_FALSE(p.take(60 * KiB, 1)); // a slab for it is 1 MiB
    range const block = p.squeeze(60 * KiB, 1);
    CHECK(block == range{1 * GiB, 60 * KiB});
    range const odd = p.squeeze(700, 1); // of three units; the large part has granules of two
    CHECK(odd.bytes == 768);
    CHECK_FALSE(p.squeeze(60 * KiB, 1));
    CHECK_FALSE(p.squeeze(0, 1));
    CHECK_FALSE(p.squeeze(70 * KiB, 1));
    p.give(odd);
    p.give(block);
    CHECK(p.free_bytes() == 70 * KiB);
    CHECK(p.largest() == 70 * KiB);
    CHECK(p.squeeze(70 * KiB, 1) == range{1 * GiB, 70 * KiB});
    CHECK(by_size::squeeze_needs(60 * KiB, 1, 2 * MiB) == 60 * KiB);
    CHECK(by_size::squeeze_needs(700, 1, 2 * MiB) == 1024);
    CHECK(by_size::squeeze_needs(70 * KiB, 1, 2 * MiB) == 70 * KiB);
}

TEST_CASE("by_size: squeezed, free blocks of slabs serve any size, and what is in use comes back too") {
    for (std::size_t const bytes : {1 * std::size_t{256}, 768 * std::size_t{1}, 2 * KiB, 20 * KiB, 64 * KiB}) {
        CAPTURE(bytes);
        by_size p;
        p.add({1 * GiB, 1 * MiB});
        std::vector<range> blocks;
        while (range const block = p.take(bytes, 1))
            blocks.push_back(block);
        for (std::size_t i = 0; i != blocks.size(); ++i)
            if (i % 8 != 0)
                p.give(blocks[i]);
        std::size_t const wanted = 6 * bytes; // seven blocks side by side are free
        CHECK_FALSE(p.take(wanted, 1));
        std::size_t const promised = p.largest();
        range const found = p.squeeze(wanted, 1);
        CHECK(found);
        CHECK(p.squeeze(promised < wanted ? promised : wanted, 1));
        for (std::size_t i = 0; i < blocks.size(); i += 8)
            CHECK_FALSE(found.overlaps(blocks[i]));
    }
}

TEST_CASE("by_size: a slab that was broken up is broken up for all siblings, each with some of its blocks") {
    by_size p;
    by_size q = p.sibling();
    p.add({1 * GiB, 1 * MiB});
    std::vector<range> blocks;
    while (range const block = p.take(20 * KiB, 1)) // slabs of 512 KiB with 25 blocks and a tail
        blocks.push_back(block);
    CHECK(blocks.size() == 50);
    for (std::size_t i = 0; i != 50; ++i)
        if (i % 3 != 0)
            (i % 3 == 1 ? p : q).give(blocks[i]);
    CHECK(p.squeeze(24 * KiB, 1)); // of its own blocks alone: it breaks both slabs up
    range const other = q.squeeze(24 * KiB, 1); // what is left of them there
    CHECK(other.bytes == 0);
    // While a sibling has blocks of a broken slab, the other cuts a part of it anew, at the same start.
    by_size r = p.sibling();
    r.give(blocks[0]);
    range const fresh = r.take(256, 1);
    CHECK(fresh.offset - blocks[0].offset < 20 * KiB);
    q.give(fresh);
    for (std::size_t i = 3; i < 50; i += 3)
        p.give(blocks[i]);
    p.absorb(q);
    p.absorb(r);
    CHECK(p.free_bytes() == 1 * MiB - 24 * KiB);
}

TEST_CASE("by_size: a chunk is free as a whole again where siblings have parts of a slab that was broken up") {
    by_size p;
    p.add({1 * GiB, 1 * MiB});
    range const first = p.take(64 * KiB, 1);
    range const second = p.take(64 * KiB, 1);
    by_size q = p.sibling();
    q.give(first);
    CHECK(p.squeeze(80 * KiB, 1).bytes == 80 * KiB);
    p.give({first.offset + 128 * KiB, 80 * KiB});
    p.give(second);
    p.absorb(q);
    SUBCASE("it can be removed") {
        CHECK(p.remove({1 * GiB, 1 * MiB}));
    }
    SUBCASE("and it is shown as one range") {
        std::size_t shown = 0;
        p.for_each_free(1, [&](range each) { shown = each.bytes; });
        CHECK(shown == 1 * MiB);
    }
}

TEST_CASE("by_size: with a limit, equal blocks fill four fifths of it at least, and those of 256 bytes all of it") {
    for (std::size_t bytes = 256; bytes <= 64 * KiB; bytes = by_size::rounded(bytes + 1, 1)) {
        CAPTURE(bytes);
        by_size p;
        p.expect_at_most(2 * MiB);
        p.add({1 * GiB, 2 * MiB});
        std::size_t filled = 0;
        for (;;) {
            range block = p.take(bytes, 1);
            if (!block)
                block = p.squeeze(bytes, 1);
            if (!block)
                break;
            filled += block.bytes;
        }
        CHECK(filled >= (bytes == 256 ? 2 * MiB : 2 * MiB / 5 * 4));
    }
}

TEST_CASE("by_size: with a limit, only blocks that are small beside it, or would waste a part of a granule, have slabs") {
    by_size p;
    p.expect_at_most(256 * MiB); // slabs of 16 KiB at most
    by_size q = p.sibling();
    p.add({1 * GiB, 1 * MiB});
    range const loose = p.take(2 * KiB, 1);
    CHECK(loose.bytes == 2 * KiB);
    CHECK(p.splinter_bytes() == 0);
    range const cut = p.take(1 * KiB, 1);
    CHECK(p.splinter_bytes() == 15 * KiB);
    range const stock = p.lend(2 * KiB, 1); // as much as eight of the largest slabs
    CHECK(stock.bytes == 128 * KiB);
    q.add(stock);
    range const second = q.take(2 * KiB, 1);
    CHECK(second.bytes == 2 * KiB);
    by_size r = p.sibling();
    r.add({2 * GiB, 3 * KiB});
    CHECK_FALSE(r.lend(2 * KiB, 1)); // just the block is never lent: it would seem to be of a slab
    CHECK(r.take(2 * KiB, 1));
    for (range const each : {loose, cut, second})
        q.give(each);
    p.absorb(q);
    CHECK(p.remove({1 * GiB, 1 * MiB}));
}

TEST_CASE("by_size: blocks on siblings never overlap where some are squeezed in") {
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        by_size places[3] = {by_size(), by_size(), by_size()};
        places[1] = places[0].sibling();
        places[2] = places[0].sibling();
        if (seed % 2 != 0)
            places[0].expect_at_most(128 * MiB);
        interval_oracle oracle;
        range const chunk{1 * GiB, 2 * MiB};
        oracle.add(chunk);
        places[0].add(chunk);
        for (int turn = 0; turn < 6000; ++turn) {
            by_size& p = places[random() % 3];
            if (turn % 50 == 0)
                p.absorb(places[random() % 3]);
            if (oracle.live() != 0 && random() % 2 == 0) {
                p.give(oracle.give(random));
                continue;
            }
            std::size_t const bytes = 1 + random() % (std::size_t{256} << random() % 10);
            std::size_t const alignment = std::size_t{1} << random() % 14;
            range block = random() % 4 == 0 ? p.squeeze(bytes, alignment) : p.take(bytes, alignment);
            if (!block) {
                if (range const stock = places[0].lend(bytes, alignment))
                    p.add(stock);
                block = p.squeeze(bytes, alignment);
            }
            if (block)
                oracle.take(block, by_size::rounded(bytes, alignment), alignment);
        }
        while (oracle.live() != 0)
            places[random() % 3].give(oracle.give_last());
        places[0].absorb(places[1]);
        places[0].absorb(places[2]);
        CHECK(places[0].remove(chunk));
    }
}

TEST_CASE("by_size: where the host has no memory to squeeze, no byte is lost") {
    if (!support::host_memory_can_fail)
        return;
    struct squeezed {
        by_size p;
        std::vector<range> blocks;
    };
    auto const scene = [] {
        squeezed now;
        now.p.add({1 * GiB, 1 * MiB});
        while (range const block = now.p.take(768, 1))
            now.blocks.push_back(block);
        for (std::size_t i = 0; i != now.blocks.size(); i += 2)
            now.p.give(now.blocks[i]);
        return now;
    };
    long const failures = support::each_failure(
        scene,
        [](squeezed& now) {
            if (range const block = now.p.squeeze(400, 1))
                now.p.give(block);
        },
        [](squeezed& now) {
            for (std::size_t i = 1; i < now.blocks.size(); i += 2)
                now.p.give(now.blocks[i]);
            CHECK(now.p.remove({1 * GiB, 1 * MiB}));
        });
    CHECK(failures > 2);
}
