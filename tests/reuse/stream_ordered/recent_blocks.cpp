// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <deque>
#include <doctest/doctest.h>
#include <random>
#include <stdexcept>
#include <vector>
#include <weir/reuse/stream_ordered/recent_blocks.hpp>

using weir::base::range;
using weir::reuse::detail::recent_blocks;

namespace {

template <unsigned Capacity>
std::vector<range> drained(recent_blocks<Capacity>& store) {
    std::vector<range> all;
    store.drain([&](range block) { all.push_back(block); });
    return all;
}

} // namespace

TEST_CASE("recent_blocks: hands out the newest block of just the size") {
    recent_blocks<8> store;
    CHECK(store.empty());
    CHECK_FALSE(store.take(256, 1));
    CHECK(store.put(range{0x1000, 256}));
    CHECK(store.put(range{0x2000, 256}));
    CHECK(store.put(range{0x3000, 512}));
    CHECK(store.bytes() == 1024);
    CHECK_FALSE(store.empty());
    CHECK_FALSE(store.take(128, 1));
    CHECK_FALSE(store.take(1024, 1));
    CHECK(store.take(256, 1) == range{0x2000, 256});
    CHECK(store.take(256, 1) == range{0x1000, 256});
    CHECK_FALSE(store.take(256, 1));
    CHECK(store.take(512, 1) == range{0x3000, 512});
    CHECK(store.empty());
}

TEST_CASE("recent_blocks: skips blocks that are not aligned, and keeps them") {
    recent_blocks<8> store;
    CHECK(store.put(range{0x10000, 256}));
    CHECK(store.put(range{0x10100, 256}));
    CHECK(store.put(range{0x10200, 256}));
    CHECK(store.take(256, 0x10000) == range{0x10000, 256}); // the oldest, behind two that do not fit
    CHECK_FALSE(store.take(256, 0x10000));
    CHECK(store.take(256, 0x200) == range{0x10200, 256});
    CHECK_FALSE(store.take(256, 0x200));
    CHECK(store.take(256, 0x100) == range{0x10100, 256});
}

TEST_CASE("recent_blocks: refuses what does not fit, and nothing changes") {
    recent_blocks<3> store;
    for (std::size_t i = 1; i <= 3; ++i)
        CHECK(store.put(range{i << 12, i * 256}));
    CHECK_FALSE(store.put(range{0x9000, 256}));
    CHECK(store.bytes() == 6 * 256);
    CHECK(store.take(512, 1) == range{0x2000, 512});
    CHECK(store.put(range{0x9000, 256}));
    CHECK_FALSE(store.put(range{0xA000, 256}));
    CHECK(store.take(256, 1) == range{0x9000, 256});
}

TEST_CASE("recent_blocks: holds one block, and 64") {
    recent_blocks<1> one;
    CHECK(one.put(range{0x100, 256}));
    CHECK_FALSE(one.put(range{0x200, 256}));
    CHECK(one.take(256, 256) == range{0x100, 256});
    recent_blocks<64> most;
    for (std::size_t i = 0; i < 64; ++i)
        REQUIRE(most.put(range{(i + 1) * 0x1000, (i % 7 + 1) * 256}));
    CHECK_FALSE(most.put(range{0xFFFF000, 256}));
    CHECK(drained(most).size() == 64);
    CHECK(most.empty());
    CHECK(most.put(range{0x1000, 256}));
}

TEST_CASE("recent_blocks: a drain hands over every block once") {
    recent_blocks<16> store;
    CHECK(drained(store).empty());
    std::size_t bytes = 0;
    for (std::size_t i = 1; i <= 16; ++i) {
        store.put(range{i << 16, i % 3 * 256 + 256});
        bytes += i % 3 * 256 + 256;
    }
    CHECK(store.bytes() == bytes);
    std::vector<range> const all = drained(store);
    CHECK(all.size() == 16);
    for (std::size_t i = 1; i <= 16; ++i) {
        int seen = 0;
        for (range const& block : all)
            seen += block == range{i << 16, i % 3 * 256 + 256};
        CHECK(seen == 1);
    }
    CHECK(store.empty());
}

TEST_CASE("recent_blocks: where the sink throws, what it has not taken stays") {
    for (int fail_at = 0; fail_at < 6; ++fail_at) {
        recent_blocks<6> store;
        for (std::size_t i = 1; i <= 6; ++i)
            store.put(range{i << 12, i * 256});
        std::vector<range> taken;
        auto const sink = [&](range block) {
            if (static_cast<int>(taken.size()) == fail_at)
                throw std::runtime_error("full");
            taken.push_back(block);
        };
        CHECK_THROWS_AS(store.drain(sink), std::runtime_error);
        std::size_t sum = 0;
        for (range const& block : taken)
            sum += block.bytes;
        CHECK(store.bytes() + sum == 21 * 256);
        std::vector<range> rest = drained(store);
        CHECK(rest.size() + taken.size() == 6);
        CHECK(store.empty());
        for (range const& block : taken)
            for (range const& other : rest)
                CHECK(block != other);
    }
}

TEST_CASE("recent_blocks: behaves as a list searched from its newest end") {
    std::mt19937_64 draw(11);
    recent_blocks<32> store;
    std::deque<range> model; // newest first
    for (int step = 0; step < 20000; ++step) {
        std::size_t const bytes = (draw() % 9 + 1) * 256;
        switch (draw() % 8) {
        case 0:
        case 1:
        case 2:
        case 3: {
            range const block{(draw() % 4096 + 1) * 256, bytes};
            REQUIRE(store.put(block) == (model.size() < 32));
            if (model.size() < 32)
                model.push_front(block);
            break;
        }
        case 4:
            if (draw() % 50 == 0) {
                REQUIRE(drained(store).size() == model.size());
                model.clear();
            }
            break;
        default: {
            std::size_t const alignment = std::size_t{1} << (draw() % 6 + 6);
            range expected;
            for (auto it = model.begin(); it != model.end(); ++it)
                if (it->bytes == bytes && it->offset % alignment == 0) {
                    expected = *it;
                    model.erase(it);
                    break;
                }
            REQUIRE(store.take(bytes, alignment) == expected);
        }
        }
        std::size_t sum = 0;
        for (range const& block : model)
            sum += block.bytes;
        REQUIRE(store.bytes() == sum);
        REQUIRE(store.empty() == model.empty());
    }
}
