// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <map>
#include <memory>
#include <random>
#include <support/failing_new.hpp>
#include <thread>
#include <vector>
#include <weir/layer/statistics/live_blocks.hpp>

using weir::largest_blocks;
using weir::layer::detail::live_blocks;

namespace {

void const* at(std::uintptr_t address) {
    return reinterpret_cast<void const*>(address);
}

largest_blocks largest_of(live_blocks const& blocks) {
    largest_blocks list;
    blocks.offer_to(list);
    return list;
}

} // namespace

TEST_CASE("live_blocks: lists what entered and did not leave") {
    live_blocks blocks;
    CHECK(largest_of(blocks).empty());
    blocks.leave(at(16)); // nothing
    for (std::uintptr_t i = 1; i <= 4; ++i)
        blocks.enter(at(16 * i), 10 * i);
    blocks.leave(at(32)); // neither the first nor the last
    blocks.leave(at(32));
    blocks.leave(at(64)); // the last
    largest_blocks const list = largest_of(blocks);
    REQUIRE(list.size() == 2);
    CHECK(list[0].address == at(48));
    CHECK(list[0].bytes == 30);
    CHECK(list[1].address == at(16));
}

TEST_CASE("live_blocks: an address that enters again, having left unheard, is there once with its new size") {
    live_blocks blocks;
    blocks.enter(at(16), 10);
    blocks.enter(at(16), 30);
    REQUIRE(largest_of(blocks).size() == 1);
    CHECK(largest_of(blocks)[0].bytes == 30);
    blocks.leave(at(16));
    CHECK(largest_of(blocks).empty());
}

TEST_CASE("live_blocks: agrees with a map over random calls") {
    std::mt19937_64 draw(11);
    live_blocks blocks;
    std::map<std::uintptr_t, std::size_t> model;
    for (int step = 0; step < 20000; ++step) {
        std::uintptr_t const address = 16 * (draw() % 200 + 1);
        if (draw() % 2 == 0) {
            std::size_t const bytes = draw() % 1000;
            blocks.enter(at(address), bytes);
            model[address] = bytes;
        } else {
            blocks.leave(at(address));
            model.erase(address);
        }
        if (step % 50 != 0)
            continue;
        largest_blocks expected;
        for (auto const& each : model)
            expected.offer({at(each.first), each.second});
        largest_blocks const list = largest_of(blocks);
        REQUIRE(list.size() == expected.size());
        for (std::size_t i = 0; i < list.size(); ++i) {
            REQUIRE(list[i].bytes == expected[i].bytes);
            REQUIRE(model.at(reinterpret_cast<std::uintptr_t>(list[i].address)) == list[i].bytes);
        }
    }
}

TEST_CASE("live_blocks: without host memory a block is not listed, and the others are") {
    if (!support::host_memory_can_fail)
        return;
    for (long k = 0; k < 3; ++k) {
        live_blocks blocks;
        std::uintptr_t i = 1;
        for (; i <= 4; ++i)
            blocks.enter(at(16 * i), 10 * i);
        {
            support::failing_new const fails(k);
            for (; i <= 200; ++i) // until the list has to grow
                blocks.enter(at(16 * i), 10 * i);
        }
        for (; i <= 210; ++i)
            blocks.enter(at(16 * i), 10 * i);
        largest_blocks const list = largest_of(blocks);
        REQUIRE(list.size() == 10);
        CHECK(list[0].bytes == 2100);
        CHECK(list[9].bytes == 2010);
        while (i-- > 1)
            blocks.leave(at(16 * i));
        CHECK(largest_of(blocks).empty());
    }
}

TEST_CASE("live_blocks: any thread may enter, leave and look") {
    live_blocks blocks;
    std::vector<std::thread> crew;
    for (std::uintptr_t t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            for (std::uintptr_t i = 1; i <= 500; ++i) {
                void const* const mine = at(16 * (t * 1000 + i));
                blocks.enter(mine, i);
                if (i % 100 == 0)
                    static_cast<void>(largest_of(blocks));
                if (i != 500)
                    blocks.leave(mine);
            }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(largest_of(blocks).size() == 4);
}
