// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every order of its steps is tried in tests/interleavings/layer.cpp.

#include <cstdint>
#include <doctest/doctest.h>
#include <iterator>
#include <thread>
#include <vector>
#include <weir/base/threads/counters.hpp>
#include <weir/base/threads/shards.hpp>

namespace {

struct shard {
    weir::base::spin_lock lock;
    weir::base::atomic<std::uint64_t> figure{0};
};

} // namespace

static_assert(sizeof(weir::base::shards<shard>) == 64 * weir::base::thread_shards);

TEST_CASE("shards: a thread has a shard of its own, and another one while that is held") {
    weir::base::shards<shard> all;
    auto const at_once = all.mine();
    auto const next = all.mine();
    CHECK(at_once.get() != next.get());
    CHECK_FALSE(at_once->lock.try_lock());
    CHECK(std::distance(all.begin(), all.end()) == weir::base::thread_shards);
}

TEST_CASE("shards: one thread comes to the same shard again") {
    weir::base::shards<shard> all;
    auto const whose = [&] { return all.mine().get(); };
    CHECK(whose() == whose());
    {
        weir::base::shards<shard>::all const locked(all);
        for (shard& each : all)
            CHECK_FALSE(each.lock.try_lock());
    }
    CHECK(whose() == whose());
}

TEST_CASE("shards: nothing is lost while threads count and one holds all shards now and then") {
    constexpr std::uint64_t rounds = 20'000;
    weir::base::shards<shard> all;
    std::vector<std::thread> crew;
    for (int t = 0; t < 4; ++t)
        crew.emplace_back([&] {
            for (std::uint64_t i = 0; i < rounds; ++i)
                weir::base::add_alone(all.mine()->figure, std::uint64_t{1});
        });
    for (int i = 0; i < 100; ++i) {
        weir::base::shards<shard>::all const locked(all);
        std::uint64_t sum[2] = {0, 0};
        for (std::uint64_t& each : sum)
            for (shard const& one : all)
                each += one.figure.load(weir::base::memory_order_relaxed);
        CHECK(sum[0] == sum[1]); // nobody is in a shard
    }
    for (std::thread& thread : crew)
        thread.join();
    std::uint64_t sum = 0;
    for (shard const& one : all)
        sum += one.figure.load(weir::base::memory_order_relaxed);
    CHECK(sum == 4 * rounds);
}
