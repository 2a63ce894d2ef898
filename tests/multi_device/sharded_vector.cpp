// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/multi_device.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/pinned_pool.hpp>

using weir::multi_device::device_streams;
using weir::multi_device::per_device;
using weir::multi_device::sharded_vector;

namespace {

std::vector<int> counted(std::size_t count, int first = 0) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), first);
    return all;
}

void check_shards(sharded_vector<int> const& xs, std::vector<int> const& all) {
    CHECK(xs.size() == all.size());
    std::size_t begin = 0;
    for (int i = 0; i < xs.devices(); ++i) {
        CAPTURE(i);
        CHECK(xs.first(i) == begin);
        CHECK(xs[i].pool().device() == i);
        std::vector<int> const found = xs[i].to_host_sync<std::vector>();
        CHECK(found == std::vector<int>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                        all.begin() + static_cast<std::ptrdiff_t>(begin + found.size())));
        begin += found.size();
    }
    CHECK(begin == all.size());
    CHECK(xs.to_host_sync<std::vector>() == all);
}

} // namespace

TEST_CASE("sharded_vector: scatters and gathers, from and to the host and any device") {
    for (bool const peers : {true, false}) {
        CAPTURE(peers);
        machine const here(peers);
        per_device<weir::device_pool> pools;
        device_streams const streams;
        weir::pinned_pool staging;
        int const last = here.count - 1;
        for (unsigned const count : {0u, 1u, 2u, 3u, 1000u, 1001u}) {
            CAPTURE(count);
            sharded_vector<int> xs(pools, streams, count);
            CHECK(xs.devices() == here.count);
            for (int i = 1; i < here.count; ++i) // even, the first ones larger
                CHECK((xs[i].size() == xs[0].size() || xs[i].size() + 1 == xs[0].size()));
            std::vector<int> const all = counted(count, 5);
            xs.scatter(all);
            check_shards(xs, all);
            for (std::size_t at = 0; at < count; at += 97)
                CHECK(xs.first(xs.device_of(at)) <= at);
            weir::device_vector<int> whole(pools[last], streams[last], count);
            xs.gather_async(whole);
            xs.zero_async(); // after the copies have read it
            CHECK(whole.to_host_sync<std::vector>() == all);
            check_shards(xs, std::vector<int>(count));
            xs.scatter(whole);
            whole.zero_async();
            weir::pinned_vector<int> pinned(staging, streams[0], count);
            xs.gather_async(pinned);
            streams.synchronize();
            CHECK(std::vector<int>(pinned.begin(), pinned.end()) == all);
            check_shards(xs, all);
        }
    }
}

TEST_CASE("sharded_vector: elements move between the devices as one says") {
    machine const here;
    auto const devices = static_cast<std::size_t>(here.count);
    per_device<weir::device_pool> pools;
    device_streams const streams;
    std::vector<int> const all = counted(1000);
    sharded_vector<int> xs(pools, streams, {1000}); // all on device 0
    xs.scatter(all);
    check_shards(xs, all);
    CHECK(xs.first(1) == 1000);
    void const* const before = xs[0].data();
    xs.reshard({1000});
    CHECK(xs[0].data() == before); // a shard that keeps its elements is not touched
    xs.reshard_evenly();
    CHECK(xs[0].size() == (1000 + devices - 1) / devices);
    check_shards(xs, all);
    if (here.count > 1) {
        xs.reshard({0, 1000});
        check_shards(xs, all);
        xs.reshard({999, 1});
        check_shards(xs, all);
    }
    xs[0].resize(xs[0].size() - 1); // a shard may be resized like any vector
    CHECK(xs.size() == 999);
    xs.reshard_evenly();
    CHECK(xs.size() == 999);
    for (int i = 0; i < here.count; ++i)
        CHECK(pools[i].state().live_blocks == (xs[i].size() != 0 ? 1u : 0u));
}

TEST_CASE("sharded_vector: random shards, random moves") {
    machine const here;
    per_device<weir::device_pool> pools;
    device_streams const streams;
    std::mt19937 random(7);
    for (int round = 0; round < 20; ++round) {
        std::size_t const count = random() % 5000;
        std::vector<int> const all = counted(count, round);
        sharded_vector<int> xs(pools, streams, count);
        xs.scatter(all);
        for (int move = 0; move < 5; ++move) {
            std::size_t const a = random() % (count + 1);
            std::size_t const b = random() % (count - a + 1);
            switch (here.count) {
            case 1: xs.reshard({count}); break;
            case 2: xs.reshard({a, count - a}); break;
            default: xs.reshard({a, b, count - a - b}); break;
            }
        }
        check_shards(xs, all);
    }
}

TEST_CASE("sharded_vector: what cannot be is refused in a sentence, and changes nothing") {
    machine const here;
    per_device<weir::device_pool> pools([](int) { return weir::pool_options{}.limit(4 * weir::MiB); });
    device_streams const streams;
    sharded_vector<int> xs(pools, streams, 300);
    std::vector<int> const all = counted(300);
    xs.scatter(all);
    std::vector<int> wrong(299);
    auto const said = [](auto const& call) { return support::sentence_of<weir::usage_error>(call); };
    CHECK_SAYS(said([&] { xs.scatter(wrong); }), "'scatter' copies all 300 elements");
    CHECK_SAYS(said([&] { xs.gather_async(wrong); }), "the other side has 299");
    CHECK_SAYS(said([&] { xs.reshard({299}); }), "'reshard' copies all 300 elements");
    CHECK_SAYS(said([&] { xs.reshard({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}); }), "was given 17 sizes for");
    CHECK_SAYS(said([&] { static_cast<void>(xs.device_of(300)); }), "there is no element 300");
    CHECK_THROWS_AS(xs[here.count], weir::usage_error);
    check_shards(xs, all);
    sharded_vector<int> big(pools, streams, {900 * weir::KiB / sizeof(int)});
    big[0].zero_async();
    weir::device_buffer const rest(pools[0], streams[0], 2 * weir::MiB);
    if (here.count > 1) {
        weir::device_buffer const other(pools[1], streams[1], 3 * weir::MiB + 512 * weir::KiB);
        CHECK_THROWS_AS(big.reshard({0, 900 * weir::KiB / sizeof(int)}), weir::out_of_memory);
        CHECK(big[0].size() == 900 * weir::KiB / sizeof(int));
    }
}

TEST_CASE("sharded_vector: if CUDA fails in the midst of a move, the shards are as they were") {
    struct state {
        per_device<weir::device_pool> pools;
        device_streams streams;
        sharded_vector<int> xs{pools, streams, {700}};
        state() { xs.scatter(counted(700)); }
    };
    support::fault_sweep([] { return std::make_unique<state>(); }, [](state& s) { s.xs.reshard_evenly(); },
                         [](state& s, support::struck const&) { check_shards(s.xs, counted(700)); });
}
