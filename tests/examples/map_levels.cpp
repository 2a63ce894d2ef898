// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does who draws the first levels of the map see what who draws all of it would see?

#include "../../examples/replay/map_levels.hpp"
#include <algorithm>
#include <cstdint>
#include <doctest/doctest.h>
#include <vector>

TEST_CASE("map_levels: no level misses a cell that a block covers") {
    std::uint64_t seed = 11;
    auto const random = [&](std::uint64_t below) { return ((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % below; };
    constexpr std::uint64_t end = 1'000'000, bytes = 64 << 20;
    std::vector<replay::life> lives;
    for (int i = 0; i < 5000; ++i) { // some thousand in one corner, where they hide one another
        std::uint64_t const within = i % 2 ? 64 : 1, size = 1 + random(i % 7 ? 4096 : 1 << 20), begin = random(end / within);
        lives.push_back({random((bytes - size) / within), size, begin, begin + random((end - begin) / within), 0, 0, true});
    }
    auto const address = [](std::uint64_t at) { return at; };
    replay::map_levels const levels = replay::levels_of(lives, address, end, bytes, lives.size());
    REQUIRE(levels.ends.size() > 2);
    CHECK(levels.ends.front() < levels.ends.back());
    CHECK(std::is_sorted(levels.ends.begin(), levels.ends.end()));
    for (std::size_t level = 0; level + 1 < levels.ends.size(); ++level) {
        CAPTURE(level);
        replay::map_grid grid(level, end, bytes);
        for (std::size_t i = 0; i < levels.ends[level]; ++i)
            grid.cover(lives[levels.blocks[i]], lives[levels.blocks[i]].address);
        for (replay::life const& each : lives)
            REQUIRE_FALSE(grid.cover(each, each.address));
    }
    std::vector<std::size_t> drawn = levels.blocks;
    std::sort(drawn.begin(), drawn.end());
    CHECK(drawn.size() == lives.size());
    CHECK(std::unique(drawn.begin(), drawn.end()) == drawn.end());
    CHECK(replay::levels_of(lives, address, end, bytes, 100).blocks.size() == 100); // and no more than that
}
