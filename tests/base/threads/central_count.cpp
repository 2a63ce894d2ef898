// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One thread here, which goes from shard to shard as several would; every order of the steps of several is tried in
// tests/interleavings/layer.cpp.

#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <weir/base/threads/central_count.hpp>
#include <weir/base/threads/shards.hpp>
#include <weir/base/threads/spin_lock.hpp>

namespace {

struct shard {
    weir::base::spin_lock lock;
    weir::base::credit units;
};

struct counted {
    counted(std::uint64_t limit, std::uint64_t slack) : count(limit, slack) {}
    weir::base::credit& credit(std::size_t i) { return (all.begin() + i)->units; }
    bool take(std::size_t i, std::uint64_t n) { return count.take(credit(i), n); }
    void give(std::size_t i, std::uint64_t n) { count.give(credit(i), n); }
    std::uint64_t in_use() const { return count.in_use(all, &shard::units); }
    std::uint64_t peak() const { return count.peak(all, &shard::units); }
    void collect() { count.collect(all, &shard::units); }

    weir::base::central_count count;
    weir::base::shards<shard> all;
};

} // namespace

TEST_CASE("central_count: of one thread both figures are exact at every moment") {
    std::mt19937_64 draw(5);
    for (std::uint64_t const slack : {std::uint64_t{0}, std::uint64_t{6400}, std::uint64_t{1} << 24}) {
        counted x(UINT64_MAX, slack);
        std::uint64_t now = 0, peak = 0;
        for (int step = 0; step < 20'000; ++step) {
            std::uint64_t const n = draw() % (step % 100 == 0 ? 1'000'000 : 1000);
            if (draw() % 2 == 0) {
                REQUIRE(x.take(3, n));
                now += n;
                peak = now > peak ? now : peak;
            } else if (n <= now) {
                x.give(3, n);
                now -= n;
            }
            REQUIRE(x.in_use() == now);
            if (step % 7 == 0) // a look records, and must not be what makes it exact
                REQUIRE(x.peak() == peak);
        }
    }
}

TEST_CASE("central_count: of several shards the count is exact, no peak is missed, and none is too high by more than the bound") {
    std::mt19937_64 draw(6);
    for (std::uint64_t const slack : {std::uint64_t{640}, std::uint64_t{64'000}}) {
        counted x(UINT64_MAX, slack);
        std::uint64_t now = 0, peak = 0;
        for (int step = 0; step < 40'000; ++step) {
            if (draw() % 5000 == 0) {
                x.collect();
                x.count.reset_peak();
                peak = now;
            }
            std::uint64_t const n = draw() % 2000;
            std::size_t const i = draw() % weir::base::thread_shards;
            bool const more = (step / 4000) % 2 == 0 ? draw() % 3 != 0 : draw() % 3 == 0;
            if (more) {
                REQUIRE(x.take(i, n));
                now += n;
                peak = now > peak ? now : peak;
            } else if (n <= now) {
                x.give(i, n);
                now -= n;
            }
            REQUIRE(x.in_use() == now);
            std::uint64_t const told = x.peak();
            REQUIRE(told >= peak);
            REQUIRE(told - peak <= (slack > told / 128 ? slack : told / 128));
        }
    }
}

TEST_CASE("central_count: the limit holds to the unit, and after 'collect' nothing is refused that fits") {
    std::mt19937_64 draw(7);
    constexpr std::uint64_t limit = 100'000;
    counted x(limit, 1 << 20);
    std::uint64_t now = 0;
    int refused = 0, in_vain = 0;
    for (int step = 0; step < 40'000; ++step) {
        std::uint64_t const n = draw() % 5000;
        std::size_t const i = draw() % weir::base::thread_shards;
        if (draw() % 2 == 0) {
            bool taken = x.take(i, n);
            if (!taken) {
                x.collect();
                taken = x.take(i, n);
                ++(taken ? in_vain : refused);
            }
            REQUIRE(taken == (n <= limit - now));
            now += taken ? n : 0;
        } else if (n <= now) {
            x.give(i, n);
            now -= n;
        }
        REQUIRE(now <= limit);
        REQUIRE(x.in_use() == now);
    }
    CHECK(refused != 0);
    CHECK(in_vain != 0); // else nobody needed to collect
}

TEST_CASE("central_count: what a shard does not keep may go to the centre alone") {
    counted x(1000 * weir::base::thread_shards, 1 << 20); // a shard keeps 500
    CHECK_FALSE(x.count.is_large(500));
    CHECK(x.count.is_large(501));
    REQUIRE(x.take(0, 400));
    REQUIRE(x.count.take_directly(1000));
    CHECK(x.in_use() == 1400);
    CHECK_FALSE(x.count.take_directly(1000 * weir::base::thread_shards - 1399));
    x.give(1, 1000); // either way
    x.count.give_directly(400);
    CHECK(x.in_use() == 0);
    x.collect();
    CHECK(x.count.take_directly(1000 * weir::base::thread_shards));
    x.count.give_directly(UINT64_MAX);
    CHECK(x.in_use() == 0);
}

TEST_CASE("central_count: units that were given twice are not there twice") {
    counted x(1000, 1 << 20);
    REQUIRE(x.take(0, 600));
    x.give(0, 600);
    x.give(0, 600);
    CHECK(x.in_use() == 0);
    CHECK(x.take(0, 1000));
    CHECK_FALSE(x.take(0, 1));
    x.give(0, UINT64_MAX);
    CHECK(x.in_use() == 0);
    CHECK_FALSE(x.take(0, 1001));
}
