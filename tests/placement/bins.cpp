// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/placement/bins.hpp>

using support::interval_oracle;
using weir::KiB;
using weir::MiB;
using weir::base::range;
using bins = weir::placement::bins<256>;

static_assert(bins::rounded(1, 1) == 256 && bins::rounded(256, 256) == 256 && bins::rounded(257, 1) == 512);
static_assert(bins::rounded(0, 1) == 0 && bins::rounded(1 * MiB + 1, 1) == 0 && bins::rounded(1, 2 * MiB) == 0);
static_assert(bins::rounded(1, 64 * KiB) == 64 * KiB && bins::rounded(300, 4 * KiB) == 4 * KiB);
static_assert(bins::refill(1, 1) == 16 * KiB && bins::refill(64 * KiB, 1) == 1 * MiB && bins::refill(0, 1) == 0);
static_assert(bins::needs(1, 1, 16 * KiB) == 16 * KiB && bins::needs(1, 1, 256) == 32 * KiB - 256);

TEST_CASE("bins: at most an eighth is wasted from eight units on") {
    for (std::size_t bytes = 1; bytes <= bins::largest_block_bytes; bytes += 1 + bytes / 500) {
        std::size_t const rounded = bins::rounded(bytes, 1);
        CHECK(rounded >= bytes);
        CHECK(rounded % 256 == 0);
        CHECK(rounded == weir::base::align_up(bytes, bins::grain(bytes))); // what by_size reckons with
        if (bytes >= 8 * 256)
            CHECK((rounded - bytes) * 8 <= rounded);
        else
            CHECK(rounded - bytes < 256);
    }
}

TEST_CASE("bins: every alignment is kept by every class, in every block of a slab") {
    for (std::size_t alignment = 1; alignment <= 256 * KiB; alignment *= 2)
        for (std::size_t bytes = 1; bytes <= 256 * KiB; bytes = bytes * 2 + 77) {
            bins p;
            interval_oracle oracle;
            oracle.add({64 * MiB, 16 * MiB});
            p.add({64 * MiB, 16 * MiB});
            for (int n = 0; n < 20; ++n)
                oracle.take(p.take(bytes, alignment), bins::rounded(bytes, alignment), alignment);
        }
}

TEST_CASE("bins: a slab is used up before the next is cut, then comes the one whose first block came back last") {
    bins p;
    p.add({0, 1 * MiB});
    std::vector<range> blocks;
    for (int n = 0; n < 192; ++n)
        blocks.push_back(p.take(256, 1)); // three slabs of 64
    auto const slab_of = [](range block) { return block.offset / (16 * KiB); };
    for (int n = 0; n < 64; ++n)
        CHECK(slab_of(blocks[static_cast<std::size_t>(n)]) == slab_of(blocks[0]));
    CHECK(slab_of(blocks[64]) != slab_of(blocks[0]));
    // 30 free in the first, 10 in the second, 20 in the third; one more empties none.
    for (std::size_t n = 0; n < 30; ++n)
        p.give(blocks[n]);
    for (std::size_t n = 0; n < 9; ++n)
        p.give(blocks[64 + n]);
    for (std::size_t n = 0; n < 19; ++n)
        p.give(blocks[128 + n]);
    p.give(blocks[64 + 9]);
    p.give(blocks[128 + 19]);
    std::vector<std::size_t> order;
    for (int n = 0; n < 60; ++n)
        order.push_back(slab_of(p.take(256, 1)));
    CHECK(std::vector<std::size_t>(30, slab_of(blocks[0])) == std::vector<std::size_t>(order.begin(), order.begin() + 30));
    CHECK(std::vector<std::size_t>(20, slab_of(blocks[128])) ==
          std::vector<std::size_t>(order.begin() + 30, order.begin() + 50));
    CHECK(std::vector<std::size_t>(10, slab_of(blocks[64])) ==
          std::vector<std::size_t>(order.begin() + 50, order.end()));
}

TEST_CASE("bins: a whole slab is behind one in pieces, whichever comes to be first") {
    for (bool const became_whole : {true, false}) {
        CAPTURE(became_whole);
        bins p;
        p.add({0, 1 * MiB});
        std::vector<range> blocks;
        for (int n = 0; n < 192; ++n)
            blocks.push_back(p.take(256, 1)); // three slabs of 64, used up
        auto const give = [&](std::size_t first, std::size_t last) {
            for (; first != last; ++first)
                p.give(blocks[first]);
        };
        if (became_whole) { // the first one does, while another has a free block
            give(0, 1);
            give(64, 65);
            give(1, 64);
            CHECK(p.take(256, 1) == blocks[64]);
        } else { // one does that comes to be first when the one before it is used up
            give(0, 1);
            give(128, 129);
            give(64, 128);
            CHECK(p.take(256, 1) == blocks[0]);
            CHECK(p.take(256, 1) == blocks[128]);
        }
    }
}

TEST_CASE("bins: a class keeps one whole slab, and uses it after slabs in pieces") {
    bins p;
    p.add({0, 64 * KiB});
    std::vector<range> blocks;
    for (int n = 0; n < 128; ++n)
        blocks.push_back(p.take(256, 1));
    std::vector<range> surrendered;
    auto const note = [&](range piece) { surrendered.push_back(piece); };
    p.surrender(note);
    std::size_t before = 0;
    for (range const piece : surrendered)
        before += piece.bytes;
    CHECK(before == 32 * KiB); // what was never cut
    surrendered.clear();
    for (std::size_t n = 0; n < 64; ++n)
        p.give(blocks[n]); // the first slab is whole: kept
    p.surrender(note);
    CHECK(surrendered.empty());
    p.give(blocks[64]);
    CHECK(p.take(256, 1) == blocks[64]); // from the slab in pieces
    range const from_whole = p.take(256, 1);
    CHECK(from_whole.offset / (16 * KiB) == blocks[0].offset / (16 * KiB));
    p.give(from_whole);
    for (std::size_t n = 64; n < 128; ++n)
        p.give(blocks[n]); // the second whole slab is raw
    p.surrender(note);
    CHECK(surrendered == std::vector<range>{{blocks[64].offset / (16 * KiB) * (16 * KiB), 16 * KiB}});
    surrendered.clear();
    CHECK(p.surrender_kept(note));
    CHECK(surrendered.size() == 1);
    CHECK_FALSE(p.surrender_kept(note));
    CHECK(p.free_bytes() == 0);
    CHECK_FALSE(p.take(256, 1));
}

TEST_CASE("bins: a slab is not surrendered while a block of it is live") {
    for (unsigned seed = 0; seed < 10; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        bins p;
        interval_oracle oracle;
        oracle.add({0, 64 * MiB});
        p.add({0, 64 * MiB});
        std::size_t returned = 0;
        auto const check = [&](range piece) {
            CHECK(oracle.live_in(piece) == 0);
            returned += piece.bytes;
        };
        for (int n = 0; n < 2000; ++n) {
            if (random() % 100 == 0)
                p.surrender(check);
            else if (random() % 2 == 0) {
                std::size_t const bytes = 1 + random() % 4096;
                if (range const block = p.take(bytes, 1))
                    oracle.take(block, bins::rounded(bytes, 1), 1);
            } else if (oracle.live() != 0) {
                p.give(oracle.give(random));
            }
        }
        p.surrender_kept(check);
        while (oracle.live() != 0)
            p.give(oracle.give(random));
        p.surrender_kept(check);
        CHECK(returned == 64 * MiB);
        CHECK(p.free_bytes() == 0);
    }
}

TEST_CASE("bins: where a piece is not taken over it stays") {
    bins p;
    p.add({0, 16 * KiB});
    CHECK_THROWS_AS(p.surrender([](range) { throw std::bad_alloc(); }), std::bad_alloc);
    CHECK(p.free_bytes() == 16 * KiB);
    CHECK(p.take(256, 1));
}

TEST_CASE("bins: a class without room breaks up the slabs that others keep, unless it must not") {
    bins p;
    p.add({0, 16 * KiB});
    range const block = p.take(256, 1);
    p.give(block);
    CHECK(p.largest() == 1 * KiB); // the whole slab may be cut for another class
    CHECK_FALSE(p.take_at_hand(512, 1));
    CHECK(p.take(512, 1));
    CHECK_FALSE(p.take(256, 1));
}

TEST_CASE("bins: a slab that was another class's elsewhere is not mistaken") {
    // A slab of 256 B blocks is emptied, cut for 512 B elsewhere, and its blocks come back here.
    bins one;
    bins two = one.sibling();
    one.add({0, 16 * KiB});
    std::vector<range> blocks;
    while (range const block = one.take(256, 1))
        blocks.push_back(block);
    CHECK(blocks.size() == 64);
    for (range const block : blocks)
        two.give(block); // 'one' still has a record, which sleeps
    range const piece = two.lend(512, 1);
    CHECK(piece == range{0, 16 * KiB});
    CHECK_FALSE(two.lend(512, 1));
    two.add(piece);
    blocks.clear();
    while (range const block = two.take(512, 1))
        blocks.push_back(block);
    CHECK(blocks.size() == 32);
    for (range const block : blocks)
        one.give(block);
    CHECK(one.free_bytes() == 16 * KiB);
    CHECK(one.remove({0, 16 * KiB}));
}

TEST_CASE("bins: an empty one that absorbs takes over all, also what is known") {
    bins one;
    bins two;
    two.add({0, 1 * MiB});
    range const block = two.take(300, 1);
    one.absorb(two);
    CHECK(two.free_bytes() == 0);
    CHECK(one.free_bytes() > 900 * KiB);
    one.give(block);
    CHECK(one.remove({0, 1 * MiB}));
    CHECK_FALSE(one.lend(0, 1));
    CHECK_FALSE(one.lend(2 * MiB, 1));
}

TEST_CASE("bins: without host memory nothing is absorbed, and nothing lost") {
    struct scene {
        bins one, two;
        std::size_t in_one = 0;
        std::size_t in_two = 0;
    };
    for (int which = 0; which < 4; ++which) {
        bool const pieces = which % 2 == 1; // memory of no class yet; else slabs of which a block is free
        bool const more_there = which / 2 == 1;
        CAPTURE(which);
        auto const make = [&] {
            scene s;
            for (std::size_t n = 1; n <= 600; ++n) {
                s.one.give({n * MiB, 256});
                pieces ? s.two.add({(n + 1000) * MiB, 64 * KiB}) : s.two.give({(n + 1000) * MiB, 256});
            }
            if (more_there)
                s.one.give({2000 * MiB, 256});
            else
                s.two.give({2000 * MiB, 256});
            s.in_one = s.one.free_bytes();
            s.in_two = s.two.free_bytes();
            return s;
        };
        long const failures = support::each_failure(make, [](scene& s) { s.one.absorb(s.two); }, [](scene& s) {
            CHECK(s.one.free_bytes() == s.in_one);
            CHECK(s.two.free_bytes() == s.in_two);
        });
        CHECK((failures > 0 || !support::host_memory_can_fail));
    }
}

TEST_CASE("bins: records cost at most 48 bytes for each live block of 512 bytes") {
    bins p;
    p.add({0, 64 * MiB});
    std::size_t live = 0;
    for (; live < 100000; ++live)
        CHECK(p.take(512, 1));
    CHECK(p.bookkeeping_bytes() < 10 * live);
    // Blocks that go through once leave nothing behind: a million slabs were seen, a few are known.
    bins q;
    for (std::size_t n = 0; n < 20000; ++n) {
        q.add({n * 16 * KiB, 16 * KiB});
        for (int block = 0; block < 16; ++block)
            CHECK(q.take(1024, 1));
    }
    CHECK(q.bookkeeping_bytes() < 200 * KiB);
}

TEST_CASE("bins: once prepared, adding a slab and taking from it need no host memory") {
    for (int slabs = 0; slabs < 100; ++slabs) {
        bins p;
        for (int n = 0; n < slabs; ++n) {
            p.add({static_cast<std::size_t>(n) * 16 * KiB, 16 * KiB});
            while (p.take(256, 1)) {
            }
        }
        p.prepare();
        range block;
        {
            support::failing_new const fails(0);
            p.add({64 * MiB, 16 * KiB});
            block = p.take_at_hand(256, 1);
        }
        CHECK(block);
    }
}
