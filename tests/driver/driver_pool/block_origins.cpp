// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <new>
#include <support/failing_new.hpp>
#include <thread>
#include <type_traits>
#include <vector>
#include <weir/driver/driver_pool/block_origins.hpp>

using weir::driver::detail::block_origins;

namespace {

void* at(std::uintptr_t address) {
    return reinterpret_cast<void*>(address);
}

} // namespace

TEST_CASE("block_origins: of a pool's block that begins where CUDA said nothing is kept") {
    block_origins origins;
    CHECK(origins.note(at(0x1100), 1, false) == at(0x1100));
    CHECK(origins.note(at(0x1100), 256, false) == at(0x1100));
    CHECK(origins.take(at(0x1100)).begin == at(0x1100));
    CHECK_FALSE(origins.take(at(0x1100)).of_graph);
}

TEST_CASE("block_origins: a block that is aligned further is found by its address until it is freed") {
    block_origins origins;
    CHECK(origins.note(at(0x1100), 4096, false) == at(0x2000));
    CHECK(origins.note(at(0x5f00), 4096, false) == at(0x6000));
    CHECK(origins.find(at(0x2000)).begin == at(0x1100));
    CHECK(origins.take(at(0x2000)).begin == at(0x1100));
    CHECK(origins.take(at(0x2000)).begin == at(0x2000)); // forgotten
    CHECK(origins.find(at(0x6000)).begin == at(0x5f00));
    CHECK_FALSE(origins.find(at(0x6000)).of_graph);
    CHECK(origins.note(at(0x8000), 4096, false) == at(0x8000));
}

TEST_CASE("block_origins: tells what a block of an alignment needs, and the largest there can be keeps its origin") {
    CHECK(block_origins::padding_for(1) == 0);
    CHECK(block_origins::padding_for(256) == 0);
    CHECK(block_origins::padding_for(512) == 512);
    CHECK(block_origins::can_be(SIZE_MAX, 256));
    CHECK_FALSE(block_origins::can_be(SIZE_MAX, 512));
    constexpr std::size_t largest = block_origins::largest_alignment;
    CHECK(block_origins::can_be(1, largest));
    CHECK_FALSE(block_origins::can_be(1, 2 * largest));
    block_origins origins;
    for (bool of_graph : {false, true}) {
        void* const p = origins.note(at(largest + 256), largest, of_graph); // as far from its begin as there is
        CHECK(p == at(2 * largest));
        CHECK(origins.find(p).begin == at(largest + 256));
        CHECK(origins.find(p).of_graph == of_graph);
    }
}

TEST_CASE("block_origins: what is not known is forgotten without harm to what is, and once all is, nothing is known") {
    block_origins origins;
    CHECK(origins.empty());
    origins.note(at(0x1100), 4096, 0);
    CHECK_FALSE(origins.empty());
    origins.forget(at(0x9000));
    CHECK_FALSE(origins.empty());
    CHECK(origins.find(at(0x2000)).begin == at(0x1100));
    CHECK(origins.take(at(0x2000)).begin == at(0x1100));
    CHECK(origins.empty());
    origins.forget(at(0x2000));
    CHECK(origins.empty());
}

TEST_CASE("block_origins: a graph's block stays known, however often it is freed") {
    block_origins origins;
    CHECK(origins.note(at(0x1100), 4096, true) == at(0x2000));
    CHECK(origins.note(at(0x3000), 1, true) == at(0x3000));
    for (int round = 0; round < 3; ++round) {
        block_origins::origin const aligned = origins.take(at(0x2000));
        CHECK(aligned.of_graph);
        CHECK(aligned.begin == at(0x1100));
        CHECK(origins.take(at(0x3000)).of_graph);
        CHECK(origins.take(at(0x3000)).begin == at(0x3000));
    }
    origins.forget(at(0x2000));
    origins.forget(at(0x2000));
    CHECK_FALSE(origins.find(at(0x2000)).of_graph);
    CHECK(origins.find(at(0x3000)).of_graph);
}

TEST_CASE("block_origins: an address that is handed out again is what it is now") {
    block_origins origins;
    origins.note(at(0x3000), 1, true);
    origins.note(at(0x3000), 1, false); // the graph is gone
    CHECK_FALSE(origins.find(at(0x3000)).of_graph);
    origins.note(at(0x1100), 4096, true);
    origins.note(at(0x1e00), 4096, false);
    CHECK_FALSE(origins.find(at(0x2000)).of_graph);
    CHECK(origins.find(at(0x2000)).begin == at(0x1e00));
    origins.note(at(0x1f00), 4096, true);
    CHECK(origins.find(at(0x2000)).of_graph);
    CHECK(origins.find(at(0x2000)).begin == at(0x1f00));
}

TEST_CASE("block_origins: without host memory it stays as it was") {
    block_origins origins;
    if (support::host_memory_can_fail) {
        support::failing_new const none(0);
        CHECK_THROWS_AS(origins.note(at(0x1100), 4096, false), std::bad_alloc);
    }
    CHECK(origins.find(at(0x2000)).begin == at(0x2000));
    CHECK(origins.note(at(0x1100), 4096, false) == at(0x2000));
    CHECK(origins.find(at(0x2000)).begin == at(0x1100));
}

TEST_CASE("block_origins: threads share it") {
    block_origins origins;
    std::vector<std::thread> crew;
    for (std::uintptr_t t = 1; t <= 4; ++t)
        crew.emplace_back([&, t] {
            for (std::uintptr_t i = 0; i < 1000; ++i) {
                std::uintptr_t const begin = (t << 32) + (i << 13) + 256;
                void* const p = origins.note(at(begin), 4096, i % 3 == 0);
                block_origins::origin const found = origins.take(p);
                if (found.begin != at(begin) || found.of_graph != (i % 3 == 0))
                    FAIL_CHECK("a block was lost");
                origins.forget(p);
            }
        });
    for (std::thread& each : crew)
        each.join();
}

TEST_CASE("block_origins: the graph that owns a block forgets it with its own free, and no other graph's does") {
    block_origins origins;
    CHECK(origins.note(at(0x1100), 4096, 7) == at(0x2000));
    origins.freed_by(8, at(0x2000));
    CHECK(origins.find(at(0x2000)).begin == at(0x1100));
    CHECK(origins.find(at(0x2000)).of_graph);
    origins.freed_by(7, at(0x2000));
    CHECK(origins.find(at(0x2000)).begin == at(0x2000));
    CHECK(origins.empty());
    CHECK(origins.note(at(0x3000), 1, 7) == at(0x3000));
    CHECK(origins.note(at(0x3000), 1, 9) == at(0x3000)); // another's now
    origins.freed_by(7, at(0x3000));
    CHECK_FALSE(origins.empty());
    CHECK(origins.note(at(0x3000), 1, 0) == at(0x3000)); // and then the pool's
    CHECK(origins.empty());
    origins.freed_by(9, at(0x3000));
    CHECK(origins.empty());
}
