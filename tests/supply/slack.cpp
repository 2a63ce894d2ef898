// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/supply/slack.hpp>

using weir::GiB;
using weir::supply::slack;
using weir::MiB;

static_assert(noexcept(std::declval<slack const&>().bytes_to_move(0, 0, 0)) && noexcept(
    std::declval<slack&>().note_use(0)) && noexcept(std::declval<slack&>().note_moved(0, 0)) && noexcept(slack(1)));

namespace {

// The slack is one of so many parts of the most in use: found by asking how much a pool of 64 GiB may hold.
std::size_t parts(slack const& h) {
    std::size_t const most = 64 * GiB;
    std::size_t const over = 2 * most - h.bytes_to_move(most, most, most); // beyond 'most', without moving
    return most / (over - most);
}

} // namespace

TEST_CASE("slack: nothing is moved while no more is held than a little above what is in use") {
    slack h(200);
    CHECK(h.bytes_to_move(0, 0, 0) == 0);
    CHECK(h.bytes_to_move(0, 64 * MiB, 64 * MiB) == 0);
    CHECK(h.bytes_to_move(1 * MiB, 64 * MiB, 64 * MiB) == 0); // 65 held for 64 in use: a 64th more
    CHECK(h.bytes_to_move(1 * MiB + 1, 64 * MiB, 64 * MiB) == 1);
    CHECK(h.bytes_to_move(2 * MiB, 64 * MiB, 64 * MiB) == 1 * MiB);
    CHECK(h.bytes_to_move(60 * MiB, 5 * MiB, 64 * MiB) == 0);
    CHECK(h.bytes_to_move(60 * MiB, 6 * MiB, 64 * MiB) == 1 * MiB);
    CHECK(h.bytes_to_move(65 * MiB, 1, 64 * MiB) == 1);
    CHECK(h.bytes_to_move(65 * MiB, 0, 64 * MiB) == 0);
}

TEST_CASE("slack: no more is moved than is needed, however much is held") {
    slack h(200);
    CHECK(h.bytes_to_move(100 * GiB, 2 * MiB, 3 * MiB) == 2 * MiB);
    CHECK(h.bytes_to_move(100 * GiB, 0, 3 * MiB) == 0);
    CHECK(h.bytes_to_move(2 * MiB, 2 * MiB, 0) == 2 * MiB);
    CHECK(h.bytes_to_move(65 * MiB, 4 * MiB, 64 * MiB) == 4 * MiB);
    CHECK(h.bytes_to_move(65 * MiB - 1, 4 * MiB, 64 * MiB) == 4 * MiB - 1);
}

TEST_CASE("slack: what counts is the most that was ever in use") {
    slack h(200);
    h.note_use(640 * MiB);
    CHECK(h.bytes_to_move(600 * MiB, 50 * MiB, 64 * MiB) == 0); // less is in use now
    CHECK(h.bytes_to_move(600 * MiB, 51 * MiB, 64 * MiB) == 1 * MiB);
    h.note_use(10 * MiB); // does not lower it
    CHECK(h.bytes_to_move(600 * MiB, 50 * MiB, 0) == 0);
    CHECK(h.bytes_to_move(1300 * MiB, 0, 1280 * MiB) == 0);
    CHECK(h.bytes_to_move(1299 * MiB, 1 * MiB, 1280 * MiB) == 0);
    CHECK(h.bytes_to_move(1300 * MiB, 1 * MiB, 1280 * MiB) == 1 * MiB);
}

TEST_CASE("slack: what was asked for and not got was never in use") {
    slack h(200);
    h.note_use(64 * MiB);
    CHECK(h.bytes_to_move(64 * MiB, 100 * GiB, 100 * GiB) == 0); // fails, say, for want of memory
    CHECK(h.bytes_to_move(64 * MiB, 2 * MiB, 60 * MiB) == 1 * MiB);
    CHECK(h.bytes_to_move(1 * GiB, 2 * MiB, 60 * MiB) == 2 * MiB);
}

TEST_CASE("slack: slack doubles, up to as much again, each time that more was moved than the share of what is held") {
    std::size_t const held = 100 * MiB;
    for (unsigned percent : {1u, 25u, 100u, 200u}) {
        CAPTURE(percent);
        slack h(percent);
        CHECK(parts(h) == 64);
        for (std::size_t const before : {64u, 32u, 16u, 8u, 4u, 2u, 1u, 1u}) {
            h.note_moved(percent * MiB - 1, held);
            CHECK(parts(h) == before);
            h.note_moved(1, held); // just the share
            CHECK(parts(h) == before);
            h.note_moved(percent, held);
            CHECK(parts(h) == (before == 1 ? 1 : before / 2));
        }
    }
}

TEST_CASE(
    "slack: many small moves count as a large one, and what was moved before slack changed does not") {
    slack h(200);
    std::size_t const held = 1000 * MiB;
    for (int n = 0; n < 1000; ++n)
        h.note_moved(2 * MiB, held);
    CHECK(parts(h) == 64);
    h.note_moved(2 * MiB, held);
    CHECK(parts(h) == 32);
    for (int n = 0; n < 1000; ++n)
        h.note_moved(2 * MiB, held);
    CHECK(parts(h) == 32);
    h.note_moved(0, held); // nothing
    CHECK(parts(h) == 32);
    h.note_moved(0, held / 2); // it is what is held now that counts
    CHECK(parts(h) == 16);
    h.note_moved(100 * GiB, held); // one step at a time
    CHECK(parts(h) == 8);
    h.note_moved(0, 0);
    CHECK(parts(h) == 8);
}

TEST_CASE("slack: where nothing is moved slack stays as it is") {
    slack h(200);
    for (int n = 0; n < 1000; ++n)
        h.note_moved(0, 0);
    CHECK(parts(h) == 64);
}

TEST_CASE("slack: no sum wraps") {
    slack h(200);
    CHECK(h.bytes_to_move(0, SIZE_MAX, SIZE_MAX) == 0);
    CHECK(h.bytes_to_move(SIZE_MAX, SIZE_MAX, 0) == SIZE_MAX);
    CHECK(h.bytes_to_move(SIZE_MAX, 1, 64 * MiB) == 1);
    CHECK(h.bytes_to_move(64 * MiB, SIZE_MAX, 64 * MiB) == SIZE_MAX - 1 * MiB);
    CHECK(h.bytes_to_move(4096, SIZE_MAX - 8191, SIZE_MAX - 4095) == 0); // what is allowed would not fit
    h.note_use(SIZE_MAX);
    CHECK(h.bytes_to_move(64 * MiB, 2 * MiB, 66 * MiB) == 0);
    CHECK(h.bytes_to_move(SIZE_MAX - 1, 1, 1) == 0);
}

TEST_CASE("slack: agrees with the sentence, in wide arithmetic") {
    __extension__ typedef unsigned __int128 wide;
    for (unsigned seed = 0; seed < 8; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 draw(seed);
        unsigned const percent = 1 + static_cast<unsigned>(draw() % 400);
        slack h(percent);
        wide most = 0;
        wide moved = 0;
        wide part = 64;
        unsigned const shift = seed < 2 ? 0 : 20;
        auto const some = [&] { return static_cast<std::size_t>(draw() >> shift >> draw() % 40); };
        for (int step = 0; step < 4000; ++step) {
            std::size_t const held = some(), needed = some(), in_use = draw() % 4 == 0 ? some() : held;
            wide const top = most > in_use ? most : in_use;
            wide allowed = top + top / part;
            if (allowed > SIZE_MAX) // nobody can hold more
                allowed = SIZE_MAX;
            wide const after = wide{held} + needed;
            wide expected = after > allowed ? after - allowed : 0;
            if (expected > needed)
                expected = needed;
            std::size_t const moving = h.bytes_to_move(held, needed, in_use);
            REQUIRE(moving == static_cast<std::size_t>(expected));
            REQUIRE(moving <= needed);
            if (draw() % 2 == 0) {
                h.note_use(in_use);
                most = top;
            }
            if (draw() % 3 == 0 && moving < SIZE_MAX / 4 - static_cast<std::size_t>(moved)) {
                std::size_t const holds = held >> draw() % 20;
                h.note_moved(moving, holds);
                moved += moving;
                if (moved / percent > holds / 100) {
                    moved = 0;
                    part = part / 2 < 1 ? 1 : part / 2;
                }
            }
        }
    }
}
