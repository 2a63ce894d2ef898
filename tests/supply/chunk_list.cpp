// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cstdint>
#include <doctest/doctest.h>
#include <iterator>
#include <map>
#include <random>
#include <support/failing_new.hpp>
#include <utility>
#include <vector>
#include <weir/supply/chunk_list.hpp>

using weir::supply::chunk_list;
using weir::base::range;

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
    CHECK(chunks[0] == range{50, 10});
    CHECK(chunks[1] == range{10, 20});
    CHECK(chunks[2] == range{200, 20});
    CHECK(chunks[3] == range{100, 30});
    chunks.remove(range{200, 20});
    CHECK(chunks[1] == range{10, 20});
    CHECK(chunks[2] == range{100, 30});
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
        REQUIRE(chunks.size() == model.size());
        for (std::size_t i = 1; i < chunks.size(); ++i)
            REQUIRE(chunks[i - 1].bytes <= chunks[i].bytes);
        std::size_t const asked = draw() % 64100;
        bool const inside = std::any_of(model.begin(), model.end(), [&](range r) { return r.contains(asked); });
        REQUIRE(chunks.owns(asked) == inside);
    }
}

TEST_CASE("chunk_list: lists chunks by address, whatever came first") {
    chunk_list chunks;
    CHECK(chunks.begin() == chunks.end());
    put(chunks, range{100, 30});
    put(chunks, range{10, 20});
    put(chunks, range{200, 20});
    put(chunks, range{50, 10});
    CHECK(std::vector<range>(chunks.begin(), chunks.end()) ==
          std::vector<range>{{10, 20}, {50, 10}, {100, 30}, {200, 20}});
    chunks.remove(range{50, 10});
    CHECK(std::vector<range>(chunks.begin(), chunks.end()) ==
          std::vector<range>{{10, 20}, {100, 30}, {200, 20}});
}

TEST_CASE("chunk_list: finds the first chunk that starts at an address or behind it") {
    chunk_list chunks;
    CHECK(chunks.from(0) == chunks.end());
    CHECK(chunks.from(4096) == chunks.end());
    CHECK(chunks.from(SIZE_MAX) == chunks.end());
    put(chunks, range{4096, 4096});
    put(chunks, range{8192, 4096});
    put(chunks, range{20480, 4096});
    CHECK(chunks.from(0) == chunks.begin());
    CHECK(chunks.from(1) == chunks.begin());
    CHECK(chunks.from(4095) == chunks.begin());
    CHECK(chunks.from(4096) == chunks.begin());     // itself
    CHECK(chunks.from(4097) == chunks.begin() + 1); // not the one that it lies in
    CHECK(chunks.from(8191) == chunks.begin() + 1);
    CHECK(chunks.from(8192) == chunks.begin() + 1);
    CHECK(chunks.from(8193) == chunks.begin() + 2);
    CHECK(chunks.from(20480) == chunks.begin() + 2);
    CHECK(chunks.from(20481) == chunks.end());
    CHECK(chunks.from(SIZE_MAX) == chunks.end());
    put(chunks, range{0, 4096}); // at the very first address, and at the very last
    put(chunks, range{SIZE_MAX, 1});
    CHECK(chunks.from(0) == chunks.begin());
    CHECK(chunks.from(1) == chunks.begin() + 1);
    CHECK(chunks.from(SIZE_MAX) == chunks.end() - 1);
}

TEST_CASE("chunk_list: the order of address agrees with a sorted map") {
    std::mt19937_64 draw(8);
    chunk_list chunks;
    std::map<std::size_t, std::size_t> model;
    for (int step = 0; step < 4000; ++step) {
        std::size_t const at = draw() % 300 * 64;
        if (model.count(at) == 0 && (model.size() < 40 || draw() % 2 == 0)) {
            std::size_t const bytes = (1 + draw() % 4) * 16;
            put(chunks, range{at, bytes});
            model[at] = bytes;
        } else if (!model.empty()) {
            auto gone = model.lower_bound(at);
            gone = gone == model.end() ? model.begin() : gone;
            chunks.remove(range{gone->first, gone->second});
            model.erase(gone);
        }
        std::vector<range> expected;
        for (auto const& each : model)
            expected.push_back(range{each.first, each.second});
        REQUIRE(std::vector<range>(chunks.begin(), chunks.end()) == expected);
        std::size_t const asked = draw() % 20000;
        REQUIRE(chunks.from(asked) - chunks.begin() ==
                std::distance(model.begin(), model.lower_bound(asked)));
    }
}

TEST_CASE("chunk_list: only making room needs host memory, and where there is none nothing changes") {
    if (!support::host_memory_can_fail)
        return;
    for (std::size_t const more : {1u, 2u, 7u, 100u}) {
        CAPTURE(more);
        auto const scene = [] {
            chunk_list chunks;
            put(chunks, range{64, 16});
            put(chunks, range{256, 8});
            return chunks;
        };
        auto const unchanged = [](chunk_list const& chunks) {
            CHECK(chunks.size() == 2);
            CHECK(chunks[0] == range{256, 8});
            CHECK(*chunks.begin() == range{64, 16});
        };
        long const failures = support::each_failure(
            scene, [&](chunk_list& chunks) { chunks.reserve(more); }, unchanged);
        CHECK(failures == 2); // an array each
        chunk_list chunks = scene();
        chunks.reserve(more);
        chunks.reserve(0);
        unchanged(chunks);
        {
            support::failing_new const fails(0);
            for (std::size_t n = more; n-- > 0;)
                chunks.add(range{1024 + n * 64, 32});
            for (std::size_t n = 0; n < more; n += 2)
                chunks.remove(range{1024 + n * 64, 32});
        }
        CHECK(chunks.size() == 2 + more / 2);
    }
}

TEST_CASE("chunk_list: visits what lies in the chunks and in no hole, also where a hole reaches across several") {
    chunk_list chunks;
    weir::base::growing_array<range> holes;
    auto const outside = [&] {
        std::vector<range> seen;
        chunks.for_each_outside(holes, [&](range each) { seen.push_back(each); });
        return seen;
    };
    CHECK(outside().empty());
    for (std::size_t at : {100u, 200u, 300u, 500u, 700u})
        put(chunks, range{at, 100});
    CHECK(outside() == std::vector<range>{{100, 100}, {200, 100}, {300, 100}, {500, 100}, {700, 100}});
    holes.push_back(range{100, 10});  // at the start of one
    holes.push_back(range{150, 100}); // across two
    holes.push_back(range{290, 110}); // from one to the end of the next
    holes.push_back(range{520, 30});  // within one
    holes.push_back(range{700, 100}); // all of one
    CHECK(outside() == std::vector<range>{{110, 40}, {250, 40}, {500, 20}, {550, 50}});
}

TEST_CASE("chunk_list: the next part of a chunk inside a range") {
    std::mt19937 draw(11);
    for (int round = 0; round < 300; ++round) {
        chunk_list chunks;
        std::vector<bool> held(200);
        chunks.reserve(50);
        for (std::size_t at = draw() % 4; at + 8 < held.size(); at += draw() % 8) {
            std::size_t const bytes = 1 + draw() % 6;
            chunks.add(range{at, bytes});
            for (std::size_t i = at; i < at + bytes; ++i)
                held[i] = true;
            at += bytes;
        }
        range const within{draw() % 100, 1 + draw() % 90};
        std::vector<bool> seen(200);
        std::size_t last = within.offset;
        for (range part = chunks.next_part(within, within.offset); part; part = chunks.next_part(within, part.end())) {
            REQUIRE(part.offset >= last);
            REQUIRE(within.contains(part));
            REQUIRE(chunks.owns(part.offset));
            for (std::size_t i = part.offset; i < part.end(); ++i)
                seen[i] = true;
            last = part.end();
        }
        for (std::size_t i = 0; i < held.size(); ++i)
            REQUIRE(seen[i] == (held[i] && within.contains(i)));
    }
    CHECK_FALSE(chunk_list().next_part(range{0, 100}, 0));
}

TEST_CASE("chunk_list: ranges are brought in order of address") {
    weir::base::growing_array<range> ranges;
    weir::supply::sort_by_address(ranges);
    CHECK(ranges.empty());
    for (std::size_t i = 0; i < 1000; ++i)
        ranges.push_back(range{i * 7919 % 1000 * 64, 1 + i});
    ranges.push_back(range{SIZE_MAX - 63, 1});
    weir::supply::sort_by_address(ranges);
    CHECK(ranges.size() == 1001);
    for (std::size_t i = 0; i < 1000; ++i)
        CHECK(ranges[i].offset == i * 64);
    CHECK(ranges[1000].offset == SIZE_MAX - 63);
}
