// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <new>
#include <stdexcept>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/reuse/stream_ordered/open_blocks.hpp>

using weir::base::range;

namespace {

struct tuning {
    static constexpr unsigned recent_blocks = 4;
    static constexpr std::size_t recent_bytes = 1000;
    static constexpr unsigned young_frees = 2;
};
using store = weir::reuse::detail::open_blocks<tuning>;

std::vector<range> drained(store& blocks) {
    std::vector<range> all;
    blocks.drain([&](range block) { all.push_back(block); });
    return all;
}

// A store of a stream that is no longer young.
struct grown : store {
    grown() {
        start_anew();
        count_free_elsewhere();
        count_free_elsewhere();
    }
};

} // namespace

TEST_CASE("open_blocks: a young stream keeps nothing, nor does the next one whose blocks it keeps") {
    store blocks;
    CHECK_FALSE(blocks.put(range{0x1000, 256}));
    blocks.start_anew();
    CHECK_FALSE(blocks.put(range{0x1000, 256}));
    blocks.count_free_elsewhere();
    CHECK_FALSE(blocks.put(range{0x1000, 256}));
    blocks.count_free_elsewhere();
    CHECK(blocks.put(range{0x1000, 256}));
    CHECK(blocks.take(256, 1) == range{0x1000, 256});
    blocks.start_anew();
    CHECK_FALSE(blocks.put(range{0x1000, 256}));
    CHECK(blocks.empty());
}

TEST_CASE("open_blocks: keeps so many bytes, and so many blocks, and not one more") {
    grown blocks;
    CHECK_FALSE(blocks.put(range{0x1000, 1001}));
    CHECK(blocks.put(range{0x1000, 600}));
    CHECK_FALSE(blocks.put(range{0x2000, 401}));
    CHECK(blocks.put(range{0x2000, 400}));
    CHECK(blocks.bytes() == 1000);
    CHECK(blocks.take(600, 1) == range{0x1000, 600});
    for (std::size_t i = 0; i < 3; ++i)
        CHECK(blocks.put(range{0x3000 + i * 0x100, 8}));
    CHECK_FALSE(blocks.put(range{0x4000, 8}));
}

TEST_CASE("open_blocks: what is held is counted and drained, and not found by its size") {
    grown blocks;
    blocks.reserve(2);
    CHECK(blocks.hold(range{0x1000, 5000}));
    CHECK(blocks.hold(range{0x8000, 64}));
    CHECK_FALSE(blocks.take(64, 1));
    CHECK(blocks.put(range{0x9000, 64}));
    CHECK(blocks.bytes() == 5128);
    CHECK_FALSE(blocks.empty());
    CHECK(drained(blocks) == std::vector<range>{range{0x9000, 64}, range{0x8000, 64}, range{0x1000, 5000}});
    CHECK(blocks.empty());
    CHECK(blocks.bytes() == 0);
}

TEST_CASE("open_blocks: what a drain that throws has not taken stays") {
    grown blocks;
    for (std::size_t i = 1; i <= 3; ++i)
        CHECK(blocks.hold(range{i * 0x1000, 64}));
    CHECK(blocks.put(range{0x9000, 32}));
    for (int taken : {0, 1, 2}) {
        CHECK_THROWS_AS(blocks.drain([&](range) {
            if (taken-- == 0)
                throw std::bad_alloc();
        }),
                        std::bad_alloc);
    }
    CHECK(drained(blocks) == std::vector<range>{range{0x1000, 64}});
}

TEST_CASE("open_blocks: with no host memory for it a block is held among the recent ones, while there is a place") {
    if (!support::host_memory_can_fail)
        return;
    grown blocks;
    std::size_t kept = 0;
    {
        support::failing_new const none(0);
        for (std::size_t i = 0; i < 6; ++i)
            kept += blocks.hold(range{i * 0x1000, 5000});
    }
    CHECK(kept == 4);
    CHECK(drained(blocks).size() == 4);
}
