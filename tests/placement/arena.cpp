// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/placement/arena.hpp>

using weir::base::range;
using weir::placement::arena;

static_assert(arena::rounded(5, 256) == 5 && arena::needs(5, 256, 256) == 5 && arena::needs(5, 256, 1) == 260);

TEST_CASE("arena: blocks lie one behind the other, at their alignment") {
    arena a;
    a.add({1000, 1000});
    CHECK(a.take(1, 1) == range{1000, 1});
    CHECK(a.take(10, 8) == range{1008, 10});
    CHECK(a.take(6, 2) == range{1018, 6});
    CHECK(a.take(100, 256) == range{1024, 100});
    CHECK(a.free_bytes() == 2000 - 1124);
    CHECK_FALSE(a.take(877, 1));
    CHECK_FALSE(a.take(873, 8)); // from 1128, not from 1124
    CHECK(a.take(876, 1) == range{1124, 876});
    CHECK(a.free_bytes() == 0);
    CHECK_FALSE(a.take(1, 1));
}

TEST_CASE("arena: only the block that was taken last comes back before the end") {
    arena a;
    a.add({0, 1000});
    range const first = a.take(100, 1);
    range const second = a.take(100, 1);
    a.give(first);
    CHECK(a.free_bytes() == 800);
    a.give(second);
    CHECK(a.free_bytes() == 900);
    a.give(first); // it is the last now
    CHECK(a.free_bytes() == 1000);
    a.give({});
    a.give({5000, 10}); // no block of this arena's
    CHECK(a.free_bytes() == 1000);
    arena empty;
    empty.give({0, 10});
    CHECK(empty.free_bytes() == 0);
}

TEST_CASE("arena: a mark ends exactly the blocks taken since") {
    arena a;
    a.add({0, 1000});
    range const kept = a.take(100, 1);
    auto const point = a.mark();
    range const gone = a.take(200, 1);
    CHECK(gone.offset == 100);
    a.rewind(point);
    CHECK(a.free_bytes() == 900);
    range const next = a.take(300, 1);
    CHECK_FALSE(next.overlaps(kept));
    CHECK(next.offset == 100);
    a.rewind(a.mark());
    CHECK(a.free_bytes() == 600);
    a.clear();
    CHECK(a.free_bytes() == 1000);
    CHECK(a.take(1000, 1) == range{0, 1000});
}

TEST_CASE("arena: a mark beyond the top does not skip free bytes") {
    arena a;
    a.add({0, 100});
    range const block = a.take(60, 1);
    auto const point = a.mark();
    a.give(block);
    a.rewind(point); // nothing was taken since
    CHECK(a.free_bytes() == 100);
    CHECK(a.take(100, 1) == range{0, 100});
}

TEST_CASE("arena: marks reach back across ranges") {
    arena a;
    a.add({0, 100});
    a.add({1000, 100});
    a.add({2000, 100});
    range const kept = a.take(40, 1);
    auto const first = a.mark();
    CHECK(a.take(80, 1) == range{1000, 80});
    auto const second = a.mark();
    CHECK(a.take(50, 1) == range{2000, 50});
    CHECK(a.free_bytes() == 50);
    a.rewind(second);
    CHECK(a.free_bytes() == 120);
    CHECK(a.take(20, 1) == range{1080, 20});
    a.rewind(first);
    CHECK(a.free_bytes() == 260);
    CHECK(a.take(60, 1) == range{40, 60});
    CHECK(kept == range{0, 40});
    a.clear();
    CHECK(a.free_bytes() == 300);
}

TEST_CASE("arena: a range too small for a block is not lost, and the smallest with room is used") {
    arena a;
    a.add({0, 10});
    a.add({1000, 500});
    a.add({2000, 100});
    a.add({3000, 50});
    CHECK(a.largest() == 500);
    CHECK(a.take(90, 1) == range{2000, 90}); // the first range was untouched, and stays so
    CHECK(a.free_bytes() == 10 + 500 + 10 + 50);
    CHECK(a.largest() == 500);
    CHECK(a.take(11, 1) == range{3000, 11});
    CHECK(a.take(39, 1) == range{3011, 39});
    CHECK(a.take(10, 1) == range{0, 10});
    CHECK(a.take(500, 1) == range{1000, 500});
    CHECK(a.free_bytes() == 0);
    CHECK(a.largest() == 0);
}

TEST_CASE("arena: removes untouched ranges only, and marks stay good") {
    arena a;
    CHECK_FALSE(a.remove({0, 100}));
    a.add({0, 100});
    a.add({1000, 100});
    a.add({});
    CHECK_FALSE(a.remove({0, 50}));
    CHECK_FALSE(a.remove({1000, 99}));
    auto const start = a.mark();
    range const block = a.take(100, 1);
    CHECK_FALSE(a.remove({0, 100}));
    CHECK(a.remove({1000, 100}));
    CHECK_FALSE(a.remove({1000, 100}));
    CHECK_FALSE(a.take(1, 1));
    a.rewind(start);
    CHECK(a.free_bytes() == 100);
    CHECK(a.remove({0, 100}));
    CHECK(a.free_bytes() == 0);
    a.add({5000, 10});
    a.rewind(start);
    CHECK(a.take(10, 1) == range{5000, 10});
    CHECK(block.bytes == 100);
    a.clear();
    CHECK(a.take(10, 2) == range{5000, 10});
}

TEST_CASE("arena: nested scopes never hand out a byte that an outer one still holds") {
    for (unsigned seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        arena a;
        std::vector<range> chunks;
        for (std::size_t n = 0; n < 5; ++n) {
            chunks.push_back({n * 10000 + 4096, 1000 + random() % 4000});
            a.add(chunks.back());
        }
        std::vector<range> live;
        std::vector<std::pair<arena::mark_type, std::size_t>> marks;
        for (int n = 0; n < 2000; ++n) {
            std::size_t const what = random() % 20;
            if (what == 0) {
                marks.emplace_back(a.mark(), live.size());
            } else if (what == 1 && !marks.empty()) {
                a.rewind(marks.back().first);
                live.resize(marks.back().second);
                marks.pop_back();
            } else if (what == 2 && !live.empty() && (marks.empty() || live.size() > marks.back().second)) {
                a.give(live.back());
                live.pop_back();
            } else {
                std::size_t const alignment = std::size_t{1} << random() % 9;
                range const block = a.take(1 + random() % 300, alignment);
                if (!block)
                    continue;
                CHECK(block.offset % alignment == 0);
                bool inside = false;
                for (range const chunk : chunks)
                    inside = inside || chunk.contains(block);
                CHECK(inside);
                for (range const other : live)
                    REQUIRE_FALSE(block.overlaps(other));
                live.push_back(block);
            }
        }
        a.clear();
        std::size_t all = 0;
        for (range const chunk : chunks)
            all += chunk.bytes;
        CHECK(a.free_bytes() == all);
    }
}

TEST_CASE("arena: what takes the place of a block from before the mark ends with the mark") {
    arena a;
    a.add({0, 1000});
    range const older = a.take(100, 1);
    auto const outer = a.mark();
    range const old = a.take(100, 1);
    auto const inner = a.mark();
    a.give(old); // below the inner mark now
    CHECK(a.take(60, 1) == range{100, 60});
    a.rewind(inner);
    CHECK(a.free_bytes() == 900);
    a.give(older); // nothing was taken since: below the outer mark
    CHECK(a.take(30, 1) == range{0, 30});
    auto const again = a.mark();
    CHECK(a.take(500, 1) == range{30, 500});
    a.rewind(again);
    CHECK(a.free_bytes() == 970);
    a.rewind(outer);
    CHECK(a.free_bytes() == 1000);
}

TEST_CASE("arena: a mark may be rewound to again and again, and ends nothing from before") {
    arena a;
    a.add({0, 1000});
    range const first = a.take(100, 1);
    auto const outer = a.mark();
    range const second = a.take(100, 1);
    auto const point = a.mark();
    for (int i = 0; i < 3; ++i) {
        CHECK(a.take(300, 1) == range{200, 300});
        a.rewind(point);
        CHECK(a.free_bytes() == 800);
    }
    a.give(second); // from before 'point', which ends what takes its place, each time
    for (int i = 0; i < 3; ++i) {
        CHECK(a.take(50, 1) == range{100, 50});
        a.rewind(point);
        CHECK(a.free_bytes() == 900);
    }
    a.rewind(outer);
    CHECK(a.free_bytes() == 900);
    a.give(first);
    CHECK(a.free_bytes() == 1000);
}

TEST_CASE("arena: a mark ends what marks between that were never rewound left behind") {
    arena a;
    a.add({0, 1000});
    range const old = a.take(100, 1);
    auto const outer = a.mark();
    a.give(old);
    CHECK(a.take(60, 1) == range{0, 60});
    static_cast<void>(a.mark());
    CHECK(a.take(500, 1) == range{60, 500});
    a.rewind(outer);
    CHECK(a.free_bytes() == 1000);
}

TEST_CASE("arena: ranges that are removed, and a clear, leave no mark beyond what there is") {
    arena a;
    a.add({0, 4000});
    range const large = a.take(3000, 1);
    auto const point = a.mark();
    a.rewind(point);
    a.give(large);
    CHECK(a.remove({0, 4000}));
    a.add({8000, 100});
    CHECK(a.take(40, 1) == range{8000, 40});
    a.rewind(point);
    CHECK(a.free_bytes() == 100);
    CHECK(a.take(101, 1) == range{});
    a.clear();
    auto const again = a.mark();
    CHECK(a.take(70, 1) == range{8000, 70});
    a.clear();
    CHECK(a.take(30, 1) == range{8000, 30}); // after the mark
    a.rewind(again);
    CHECK(a.free_bytes() == 100);
    CHECK(a.take(101, 1) == range{});
    CHECK(a.take(70, 1) == range{8000, 70});
    auto const late = a.mark();
    a.clear();
    CHECK(a.take(30, 1) == range{8000, 30});
    a.rewind(late);
    CHECK(a.free_bytes() == 100);
}

TEST_CASE("arena: a mark newer than one that was rewound to is none, and what is not the arena's ends nothing") {
    arena a;
    a.add({0, 1000});
    auto const outer = a.mark(weir::base::usage{5, 1});
    range const kept = a.take(100, 1);
    auto const inner = a.mark(weir::base::usage{105, 2});
    CHECK(a.rewind(outer).blocks == 1);
    CHECK(a.take(100, 1) == kept);
    weir::base::usage const live = a.rewind(inner, weir::base::usage{105, 2});
    CHECK(live.bytes == 105);
    CHECK(live.blocks == 2);
    CHECK(a.free_bytes() == 900);
    CHECK(a.take(10, 1) == range{100, 10});
    auto const instead = a.mark(weir::base::usage{115, 2}); // further on than the one whose place it takes
    CHECK(a.take(10, 1) == range{110, 10});
    CHECK(a.rewind(inner, weir::base::usage{125, 3}).blocks == 3);
    CHECK(a.free_bytes() == 880);
    CHECK(a.rewind(instead).blocks == 2);
    a.give({100, 10});
    CHECK(a.free_bytes() == 900);
    a.give({});
    a.give({5000, 100});
    CHECK(a.free_bytes() == 900);
    weir::base::usage const outside = a.rewind(outer);
    CHECK(outside.bytes == 5);
    CHECK(outside.blocks == 1);
    CHECK(a.free_bytes() == 1000);
}
