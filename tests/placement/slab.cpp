// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <support/interval_oracle.hpp>
#include <vector>
#include <weir/placement/slab.hpp>

using weir::base::range;
using weir::placement::slab;

static_assert(slab<64>::rounded(1, 1) == 64 && slab<64>::rounded(64, 64) == 64);
static_assert(slab<64>::rounded(0, 1) == 0 && slab<64>::rounded(65, 1) == 0 && slab<64>::rounded(1, 128) == 0);
static_assert(slab<48>::granularity == 16 && slab<48>::needs(1, 1, 1) == 48 + 15 && slab<48>::needs(49, 1, 1) == 0);

TEST_CASE("slab: blocks are aligned to what their size allows, and the ends of a range are left") {
    slab<48> s;
    s.add({1001, 200}); // 1008 to 1200: four blocks
    CHECK(s.free_bytes() == 192);
    CHECK(s.largest() == 48);
    support::interval_oracle oracle;
    oracle.add({1001, 200});
    for (int n = 0; n < 4; ++n)
        oracle.take(s.take(20, 16), 48, 16);
    CHECK_FALSE(s.take(20, 16));
    CHECK(s.free_bytes() == 0);
    CHECK(s.largest() == 0);
    s.add({2000, 47});
    s.add({2001, 15});
    s.add({SIZE_MAX - 7, 7});
    CHECK(s.free_bytes() == 0);
}

TEST_CASE("slab: the block freed last is handed out first") {
    slab<64> s;
    s.add({0, 640});
    range const one = s.take(1, 1);
    range const two = s.take(1, 1);
    s.give(one);
    s.give(two);
    CHECK(s.take(1, 1) == two);
    CHECK(s.take(1, 1) == one);
}

TEST_CASE("slab: a range is removed only when each of its blocks is here") {
    slab<64> s;
    s.add({0, 1000});
    s.add({1000, 1000});
    CHECK_FALSE(s.remove({5000, 1000}));
    s.add({5000, 70});                 // starts too far from where a block may: no room for one
    CHECK(s.remove({5000, 70}));       // so nothing of it can be missing
    std::vector<range> taken;
    while (range const block = s.take(1, 1))
        taken.push_back(block);
    CHECK(taken.size() == 30);
    CHECK_FALSE(s.remove({0, 1000}));
    for (range const block : taken)
        if (block.offset < 1000 && block.offset != 64)
            s.give(block);
    CHECK_FALSE(s.remove({0, 1000}));
    s.give({64, 64});
    CHECK(s.remove({0, 1000}));
    CHECK_FALSE(s.remove({0, 1000}));
    CHECK(s.free_bytes() == 0);
    for (range const block : taken)
        if (block.offset >= 1000)
            s.give(block);
    CHECK(s.free_bytes() == 15 * 64);
    CHECK(s.remove({1000, 1000}));
    CHECK(s.free_bytes() == 0);
}

TEST_CASE("slab: blocks move between siblings, and none is lost or doubled") {
    std::mt19937_64 random(1);
    slab<4096> one;
    slab<4096> two = one.sibling();
    support::interval_oracle oracle;
    oracle.add({4096, 4096 * 500});
    one.add({4096, 4096 * 500});
    for (int n = 0; n < 5000; ++n) {
        slab<4096>& from = random() % 2 == 0 ? one : two;
        slab<4096>& to = random() % 2 == 0 ? one : two;
        if (random() % 50 == 0)
            from.absorb(to);
        else if (random() % 10 == 0) {
            if (range const lent = from.lend(1, 4096))
                to.add(lent);
        } else if (random() % 2 == 0 || oracle.live() == 0) {
            if (range const block = from.take(4000, 4096))
                oracle.take(block, 4096, 4096);
        } else {
            to.give(oracle.give(random));
        }
        CHECK(one.free_bytes() + two.free_bytes() + oracle.live_bytes() == 4096 * 500);
    }
    one.absorb(one);
    one.absorb(two);
    while (oracle.live() != 0)
        one.give(oracle.give_last());
    CHECK(one.remove({4096, 4096 * 500}));
}
