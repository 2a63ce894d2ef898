// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <support/capture.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/multi_device.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/managed_pool.hpp>
#include <weir/recipes/pinned_pool.hpp>
#include <weir/stable.hpp>

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
    CHECK(xs.first(here.count - 1) == (here.count > 1 ? 1000 : 0));
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
            std::vector<std::size_t> sizes{a, b};
            sizes.resize(static_cast<std::size_t>(here.count));
            sizes.back() += count - std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
            xs.reshard(sizes);
            sharded_vector<int> as_sized(pools, streams, sizes);
            CHECK(as_sized[0].size() == sizes[0]);
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
    CHECK_SAYS(said([&] { xs.reshard({299}); }), "'reshard' moves all 300 elements");
    CHECK_SAYS(said([&] { xs.reshard({299}); }), "and the sizes make 299;");
    if (here.count > 1) // a sum that wraps
        CHECK_SAYS(said([&] { xs.reshard({301, SIZE_MAX}); }), "'reshard' moves all 300 elements");
    CHECK_SAYS(said([&] { xs.reshard({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}); }), "was given 17 sizes for");
    CHECK_SAYS(said([&] { static_cast<void>(xs.device_of(300)); }), "there is no element 300");
    CHECK_THROWS_AS(xs[here.count], weir::usage_error);
    CHECK_THROWS_AS(xs.first(here.count), weir::usage_error);
    CHECK(xs.first(weir::any_device) == 0); // the current one
    check_shards(xs, all);
    if (here.count > 1) { // a device named twice
        weir::device_pool* const same[] = {&pools[0], &pools[0], &pools[0]};
        struct {
            weir::device_pool* const* all;
            weir::device_pool& operator[](int at) const { return *all[at]; }
        } const twice{same};
        CHECK_SAYS(said([&] { sharded_vector<int>(twice, streams, 0); }),
                   "the pool that was named for device 1 has memory of device 0");
        std::vector<weir::stream_ref> const one(static_cast<std::size_t>(here.count), streams[0]);
        struct {
            std::vector<weir::stream_ref> const& all;
            weir::stream_ref operator[](int at) const { return all[static_cast<std::size_t>(at)]; }
        } const stream_twice{one};
        CHECK_SAYS(said([&] { sharded_vector<int>(pools, stream_twice, 0); }),
                   "the stream that was named for device 1 is one of device 0");
    }
    std::vector<weir::stream_ref> const hosts(static_cast<std::size_t>(here.count), weir::on_host);
    CHECK_SAYS(said([&] { sharded_vector<int>(pools, hosts, 0); }), "'on_host' is none; name a stream of device 0");
    std::vector<weir::stream_ref> const few;
    CHECK_SAYS(said([&] { sharded_vector<int>(pools, few, 0); }), "weir: streams were named for 0 devices, and CUDA sees more");
    sharded_vector<int> big(pools, streams, {900 * weir::KiB / sizeof(int)});
    big[0].zero_async();
    weir::device_buffer const rest(pools[0], streams[0], 2 * weir::MiB);
    if (here.count > 1) {
        weir::device_buffer const other(pools[1], streams[1], 3 * weir::MiB + 512 * weir::KiB);
        CHECK_THROWS_AS(big.reshard({0, 900 * weir::KiB / sizeof(int)}), weir::out_of_memory);
        CHECK(big[0].size() == 900 * weir::KiB / sizeof(int));
    }
}

TEST_CASE("sharded_vector: copies are in the order of the streams of both sides, whichever device is current") {
    for (std::uint64_t const seed : {0u, 1u, 2u, 3u}) {
        CAPTURE(seed);
        machine const here(seed != 1, seed);
        per_device<weir::device_pool> pools;
        weir::pinned_pool pinned;
        device_streams const streams;
        stream_of const mine(0);
        weir::stable::page_pool pages(weir::stable::page_pool_options{}.device(0));
        elsewhere const current(here);
        std::vector<int> const all = counted(3000, 3);
        sharded_vector<int> xs(pools, streams, 3000);
        weir::device_vector<int> const filled(pools[0], mine, all);
        weir::device_vector<int> const zeros(pools[0], mine, std::vector<int>(3000));
        weir::device_vector<int> result(pools[0], mine, 3000);
        auto const copy = [&](int* to, int const* from) {
            weir::check_cuda(cudaMemcpyAsync(to, from, zeros.size_bytes(), cudaMemcpyDefault, mine), "cudaMemcpyAsync");
        };
        auto const by_way_of = [&](auto& between) {
            xs.zero_async();
            xs.scatter(between); // which 'mine' is yet to fill
            copy(between.data(), zeros.data());
            xs.gather_async(between);
            xs.zero_async();
            copy(result.data(), between.data());
            CHECK(result.to_host_sync<std::vector>() == all);
        };
        weir::runtime::device_scope const first(0); // for the copies of this test
        weir::pinned_vector<int> by_pinned(pinned, mine, 3000);
        filled.copy_to_async(by_pinned.data());
        by_way_of(by_pinned);
        weir::device_vector<int> by_device(pools[0], mine, filled);
        by_way_of(by_device);
        weir::stable_vector<int> stable(pages, mine, 3000);
        stable.assign(filled);
        by_way_of(stable);
    }
}

TEST_CASE("sharded_vector: default streams are each device's own, on memory of a device and on managed memory") {
    for (cudaStream_t const name : {cudaStreamLegacy, cudaStreamPerThread})
        for (std::uint64_t const seed : {0u, 5u}) {
            CAPTURE(seed);
            machine const here(true, seed);
            per_device<weir::device_pool> pools;
            struct {
                weir::managed_pool pool;
                weir::managed_pool& operator[](int) { return pool; }
            } managed; // one for all devices
            device_streams const streams([&](int) { return name; });
            elsewhere const current(here);
            auto const use = [&](auto& of) {
                sharded_vector<int> xs(of, streams, counted(1000).size());
                for (int i = 0; i < here.count; ++i)
                    CHECK(xs[i].placed().device == i);
                xs.scatter(counted(1000));
                CHECK(xs.to_host_sync<std::vector>() == counted(1000));
                xs.reshard({1000});
                xs.reshard_evenly();
                int host[1000] = {};
                xs.gather_async(host);
                xs.synchronize();
                CHECK(std::vector<int>(host, host + 1000) == counted(1000));
            };
            use(pools);
            use(managed);
        }
}

TEST_CASE("sharded_vector: elements of any alignment, and other objects") {
    struct alignas(1024) wide {
        int number;
    };
    machine const here;
    per_device<weir::device_pool> pools;
    device_streams const streams;
    sharded_vector<wide> xs(pools, streams, {5});
    std::vector<wide> all(5);
    for (int i = 0; i < 5; ++i)
        all[static_cast<std::size_t>(i)].number = i;
    xs.scatter(all);
    for (int move = 0; move < 2; ++move) {
        for (int i = 0; i < here.count; ++i)
            CHECK(reinterpret_cast<std::uintptr_t>(xs[i].data()) % alignof(wide) == 0);
        std::vector<wide> const found = xs.to_host_sync<std::vector>();
        for (int i = 0; i < 5; ++i)
            CHECK(found[static_cast<std::size_t>(i)].number == i);
        xs.reshard_evenly();
    }
    sharded_vector<wide> moved = std::move(xs);
    CHECK(moved.size() == 5);
    CHECK(xs.size() == 0); // NOLINT: moved from
    CHECK_THROWS_AS(xs[0], weir::usage_error);
    CHECK_THROWS_AS(xs.first(0), weir::usage_error);
    xs.reshard_evenly();
    xs.synchronize();
    CHECK(xs.to_host_sync<std::vector>().empty());
    sharded_vector<wide>& same = moved;
    moved = std::move(same);
    CHECK(moved.size() == 5);
    xs = std::move(moved);
    CHECK(xs.to_host_sync<std::vector>()[4].number == 4);
}

TEST_CASE("sharded_vector: who was named with 'used_on' is waited for after a move, too") {
    machine const here;
    stream_of const second(0);
    device_streams const streams;
    per_device<weir::device_pool> pools;
    sharded_vector<int> xs(pools, streams, counted(9000).size());
    xs.scatter(counted(9000));
    xs[0].used_on(second);
    xs.reshard({9000});
    weir::order_after(second, streams[0]);
    weir::device_vector<int> kept(pools[0], second, xs[0]);
    std::vector<int> const zeros(9000);
    {
        weir::runtime::device_scope const there(0);
        weir::check_cuda(cudaMemcpyAsync(kept.data(), xs[0].data(), kept.size_bytes(), cudaMemcpyDefault, second), "copy");
    }
    xs = sharded_vector<int>(pools, streams, {}); // frees them
    sharded_vector<int> next(pools, streams, {9000});
    next.scatter(zeros);
    CHECK(kept.to_host_sync<std::vector>() == counted(9000));
}

TEST_CASE("sharded_vector: nothing is captured that the host would have to wait for") {
    machine const here;
    stream_of const captured(0);
    per_device<weir::device_pool> pools;
    device_streams const streams(
        [&](int device) { return device == 0 ? weir::stream_ref(captured) : weir::stream_ref(weir::on_host); });
    sharded_vector<int> xs(pools, streams, 300);
    support::capture capture(captured);
    CHECK_THROWS_AS(xs.to_host_sync<std::vector>(), weir::usage_error);
    CHECK_THROWS_AS(xs.synchronize(), weir::usage_error);
    std::size_t nodes = 7;
    CHECK(capture.unbroken(&nodes));
    CHECK(nodes == 0);
}

TEST_CASE("sharded_vector: if CUDA fails in the midst of a move, the shards are as they were") {
    struct state {
        per_device<weir::device_pool> pools;
        device_streams streams;
        sharded_vector<int> xs{pools, streams, {700}};
        state() { xs.scatter(counted(700)); }
    };
    auto const make = [] { return std::make_unique<state>(); };
    auto const as_before = [](state& s, support::struck const&) { check_shards(s.xs, counted(700)); };
    sweep_devices(make, [](state& s) { s.xs.reshard_evenly(); }, as_before);
    sweep_devices(make, [](state& s) { sharded_vector<int> const another(s.pools, s.streams, 700); }, as_before);
    sweep_devices(
        make,
        [](state& s) {
            weir::device_vector<int> whole(s.pools[1], s.streams[1], 700);
            s.xs.gather_async(whole);
            s.xs.scatter(whole);
            static_cast<void>(s.xs.to_host_sync<std::vector>());
        },
        as_before);
}
