// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <random>
#include <vector>
#include <weir/base/usage.hpp>

using weir::base::range;
using weir::base::usage;

TEST_CASE("usage: counts what was taken and not yet given") {
    usage now;
    CHECK(now.bytes == 0);
    CHECK(now.blocks == 0);
    now.took(range{0, 256});
    now.took(range{512, 1024});
    CHECK(now.bytes == 1280);
    CHECK(now.blocks == 2);
    now.gave(range{0, 256});
    CHECK(now.bytes == 1024);
    CHECK(now.blocks == 1);
    CHECK(now.largest_free_bytes == 0);
    CHECK(now.lost_bytes == 0);
}

TEST_CASE("usage: any order of takes and gives ends at zero") {
    std::mt19937_64 draw(1);
    usage now;
    std::vector<range> live;
    std::size_t bytes = 0;
    for (int step = 0; step < 2000; ++step) {
        if (live.empty() || draw() % 3 != 0) {
            range const block{draw() % 1000000, 1 + draw() % 100000};
            live.push_back(block);
            bytes += block.bytes;
            now.took(block);
        } else {
            std::swap(live[draw() % live.size()], live.back());
            bytes -= live.back().bytes;
            now.gave(live.back());
            live.pop_back();
        }
        REQUIRE(now.bytes == bytes);
        REQUIRE(now.blocks == live.size());
    }
    for (range const& block : live)
        now.gave(block);
    CHECK(now.bytes == 0);
    CHECK(now.blocks == 0);
}
