// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <doctest/doctest.h>
#include <thread>
#include <vector>
#include <weir/trace/event_ring.hpp>

using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::event_ring;

namespace {

event numbered(std::uint64_t number) {
    event one;
    one.kind = event_kind::allocate;
    one.bytes = number;
    return one;
}

std::vector<event> drained(event_ring& ring) {
    std::vector<event> all;
    ring.drain([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
    return all;
}

} // namespace

TEST_CASE("event_ring: what was written is drained once, in order, with time and thread") {
    event_ring ring(1000);
    CHECK(ring.capacity() >= 1000);
    CHECK(drained(ring).empty());
    for (std::uint64_t i = 0; i < 900; ++i)
        ring.write(numbered(i));
    std::vector<event> const all = drained(ring);
    REQUIRE(all.size() == 900);
    for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i].bytes == i);
        CHECK(all[i].thread == all[0].thread);
        CHECK((i == 0 || all[i].ticks >= all[i - 1].ticks));
    }
    CHECK(ring.lost() == 0);
    CHECK(drained(ring).empty());
    ring.write(numbered(1000));
    CHECK(drained(ring).size() == 1);
}

TEST_CASE("event_ring: a copy leaves what it sees, each event once") {
    event_ring ring(100);
    std::uint64_t written = 0;
    for (int turn = 0; turn < 5; ++turn) {
        for (int i = 0; i < 15; ++i)
            ring.write(numbered(written++));
        std::vector<event> all;
        ring.copy([&](event const* first, std::size_t count) { all.insert(all.end(), first, first + count); });
        REQUIRE(all.size() == written);
        for (std::size_t i = 0; i < all.size(); ++i)
            CHECK(all[i].bytes == i);
    }
    CHECK(drained(ring).size() == written);
}

TEST_CASE("event_ring: the oldest are written over, and counted") {
    event_ring ring(1); // two blocks
    std::size_t const room = ring.capacity();
    for (std::uint64_t i = 0; i < 1000; ++i)
        ring.write(numbered(i));
    std::vector<event> const all = drained(ring);
    CHECK(all.size() + ring.lost() == 1000);
    CHECK(all.size() > room / 2 - 1);
    std::vector<bool> seen(1000);
    for (event const& each : all)
        seen[each.bytes] = true;
    for (std::size_t i = 1000 - all.size(); i < 1000; ++i)
        CHECK(seen[i]);
}

TEST_CASE("event_ring: a drain that throws loses what it was given, and nothing else") {
    event_ring ring(1);
    for (std::uint64_t i = 0; i < 12; ++i)
        ring.write(numbered(i));
    CHECK_THROWS_AS(ring.drain([](event*, std::size_t) { throw 1; }), int);
    CHECK(drained(ring).size() == 4);
}

TEST_CASE("event_ring: an event that finds no block is counted") {
    event_ring ring(1);
    ring.write(numbered(0));
    std::uint64_t drained_now = 0;
    std::uint64_t written = 1;
    ring.drain([&](event*, std::size_t count) { // it has one of the two blocks
        drained_now += count;
        if (written != 1)
            return;
        std::vector<std::thread> threads;
        std::atomic<int> waiting{0};
        for (int i = 0; i < 8; ++i) // in lanes of their own, as long as all of them run
            threads.emplace_back([&] {
                ++waiting;
                while (waiting < 8)
                    std::this_thread::yield();
                ring.write(numbered(1));
                ++waiting;
                while (waiting < 16)
                    std::this_thread::yield();
            });
        for (std::thread& each : threads)
            each.join();
        written += 8;
    });
    CHECK(written == 9);
    CHECK(ring.lost() >= 1);
    CHECK(drained_now + drained(ring).size() + ring.lost() == written);
}

TEST_CASE("event_ring: threads write and drain at once, and nothing is drained twice") {
    constexpr std::uint64_t each_writes = 20000;
    constexpr std::size_t writers = 3;
    event_ring ring(4096);
    std::vector<int> seen(writers * each_writes);
    std::atomic<std::size_t> running{writers};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < writers; ++i)
        threads.emplace_back([&, i] {
            for (std::uint64_t k = 0; k < each_writes; ++k)
                ring.write(numbered(i * each_writes + k));
            --running;
        });
    std::uint64_t count = 0;
    auto const drain = [&] {
        ring.drain([&](event const* first, std::size_t size) {
            count += size;
            for (std::size_t i = 0; i < size; ++i)
                ++seen[first[i].bytes];
        });
    };
    while (running != 0)
        drain();
    for (std::thread& each : threads)
        each.join();
    drain();
    for (int const times : seen)
        CHECK(times <= 1);
    CHECK(count + ring.lost() == writers * each_writes);
}
