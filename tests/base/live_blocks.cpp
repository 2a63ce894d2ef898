// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <support/failing_new.hpp>
#include <weir/base/live_blocks.hpp>

using weir::largest_blocks;
using live_blocks = weir::base::live_blocks<>;

namespace {

void const* at(std::uintptr_t address) {
    return reinterpret_cast<void const*>(address);
}

void enter(live_blocks& blocks, std::uintptr_t address, std::size_t bytes) {
    blocks.enter({{at(address), bytes}});
}

void leave(live_blocks& blocks, std::uintptr_t address) {
    if (auto* const listed = blocks.find(at(address)))
        CHECK(blocks.leave(*listed).address == at(address));
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
    leave(blocks, 16); // nothing
    for (std::uintptr_t i = 1; i <= 4; ++i)
        enter(blocks, 16 * i, 10 * i);
    leave(blocks, 32); // neither the first nor the last
    leave(blocks, 32);
    leave(blocks, 64); // the last
    largest_blocks const list = largest_of(blocks);
    REQUIRE(list.size() == 2);
    CHECK(list[0].address == at(48));
    CHECK(list[0].bytes == 30);
    CHECK(list[1].address == at(16));
}

TEST_CASE("live_blocks: an address that enters again, having left unheard, is there once with its new size") {
    live_blocks blocks;
    enter(blocks, 16, 10);
    enter(blocks, 16, 30);
    REQUIRE(largest_of(blocks).size() == 1);
    CHECK(largest_of(blocks)[0].bytes == 30);
    leave(blocks, 16);
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
            enter(blocks, address, bytes);
            model[address] = bytes;
        } else {
            leave(blocks, address);
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

TEST_CASE("live_blocks: what came after the first few leaves at once, and is told") {
    std::mt19937_64 draw(12);
    live_blocks blocks;
    std::map<std::uintptr_t, std::uint64_t> model; // address -> number
    for (int step = 0; step < 2000; ++step) {
        std::uintptr_t const address = 16 * (draw() % 50 + 1);
        if (draw() % 3 != 0) {
            enter(blocks, address, 1);
            model[address] = blocks.entered();
        } else {
            leave(blocks, address);
            model.erase(address);
        }
        if (step % 20 != 0)
            continue;
        std::uint64_t const kept = blocks.entered() - draw() % 10;
        blocks.leave_after(kept, [&](weir::base::numbered_block const& gone) {
            REQUIRE(gone.number > kept);
            REQUIRE(model.erase(reinterpret_cast<std::uintptr_t>(gone.address)) == 1);
        });
        REQUIRE(blocks.size() == model.size());
        for (auto const& each : blocks)
            REQUIRE(each.number <= kept);
    }
}

TEST_CASE("live_blocks: without host memory nothing changes, and with room none is needed") {
    if (!support::host_memory_can_fail)
        return;
    live_blocks blocks;
    std::uintptr_t next = 16;
    for (int round = 0; round < 200; ++round) {
        long const failures = support::each_failure([] { return 0; }, [&](int) { enter(blocks, next, 1); },
                                                    [&](int) {
                                                        CHECK(blocks.find(at(next)) == nullptr);
                                                        CHECK(blocks.entered() == static_cast<std::uint64_t>(round));
                                                    });
        CHECK(failures <= 2);
        next += 16;
    }
    blocks.reserve(1000);
    support::failing_new const none(0);
    for (; blocks.size() < 1000; next += 16)
        enter(blocks, next, 1);
}
