// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <vector>
#include <weir/base/chunk_list.hpp>

using weir::chunk_list;
using weir::range;

namespace {

void put(chunk_list& chunks, range chunk) {
    chunks.reserve(1);
    chunks.add(chunk);
}

} // namespace

static_assert(noexcept(std::declval<chunk_list&>().add(range{})) && noexcept(std::declval<chunk_list&>().remove(range{})));

TEST_CASE("chunk_list: an empty list owns nothing") {
    chunk_list const chunks;
    CHECK(chunks.size() == 0);
    CHECK(chunks.bytes() == 0);
    CHECK_FALSE(chunks.owns(0));
    CHECK_FALSE(chunks.owns(4096));
    CHECK_FALSE(chunks.owns(SIZE_MAX));
}

TEST_CASE("chunk_list: owns each byte of a chunk, and none beside it") {
    chunk_list chunks;
    put(chunks, range{4096, 4096});
    CHECK_FALSE(chunks.owns(4095));
    CHECK(chunks.owns(4096));
    CHECK(chunks.owns(8191));
    CHECK_FALSE(chunks.owns(8192));
    CHECK_FALSE(chunks.owns(0));
    put(chunks, range{8192, 100}); // neighbours
    CHECK(chunks.owns(8191));
    CHECK(chunks.owns(8192));
    CHECK(chunks.owns(8291));
    CHECK_FALSE(chunks.owns(8292));
    chunks.remove(range{4096, 4096});
    CHECK_FALSE(chunks.owns(8191));
    CHECK(chunks.owns(8192));
}

TEST_CASE("chunk_list: a chunk may end with the address space") {
    chunk_list chunks;
    put(chunks, range{SIZE_MAX - 255, 256});
    CHECK(chunks.owns(SIZE_MAX));
    CHECK(chunks.owns(SIZE_MAX - 255));
    CHECK_FALSE(chunks.owns(SIZE_MAX - 256));
}

TEST_CASE("chunk_list: lists chunks by size, the smallest first, and by address among equals") {
    chunk_list chunks;
    put(chunks, range{100, 30});
    put(chunks, range{10, 20});
    put(chunks, range{200, 20});
    put(chunks, range{50, 10});
    CHECK(chunks.size() == 4);
    CHECK(chunks.bytes() == 80);
    CHECK(chunks[0] == range{50, 10});
    CHECK(chunks[1] == range{10, 20});
    CHECK(chunks[2] == range{200, 20});
    CHECK(chunks[3] == range{100, 30});
    chunks.remove(range{200, 20});
    CHECK(chunks[1] == range{10, 20});
    CHECK(chunks[2] == range{100, 30});
    CHECK(chunks.bytes() == 60);
}

TEST_CASE("chunk_list: agrees with a plain list") {
    std::mt19937_64 draw(3);
    chunk_list chunks;
    std::vector<range> model;
    for (int step = 0; step < 3000; ++step) {
        if (model.size() < 5 || (model.size() < 60 && draw() % 2 == 0)) {
            range const chunk{draw() % 1000 * 64, (draw() % 4 + 1) * 16};
            bool const free_there = std::none_of(model.begin(), model.end(), [&](range r) { return r.overlaps(chunk); });
            if (free_there) {
                put(chunks, chunk);
                model.push_back(chunk);
            }
        } else {
            std::swap(model[draw() % model.size()], model.back());
            chunks.remove(model.back());
            model.pop_back();
        }
        std::size_t sum = 0;
        for (range const& each : model)
            sum += each.bytes;
        REQUIRE(chunks.size() == model.size());
        REQUIRE(chunks.bytes() == sum);
        for (std::size_t i = 1; i < chunks.size(); ++i)
            REQUIRE(chunks[i - 1].bytes <= chunks[i].bytes);
        std::size_t const asked = draw() % 64100;
        bool const inside = std::any_of(model.begin(), model.end(), [&](range r) { return r.contains(asked); });
        REQUIRE(chunks.owns(asked) == inside);
    }
}
