// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <cstddef>
#include <memory>
#include <numeric>
#include <support/recording.hpp>
#include <support/sentence.hpp>
#include <utility>
#include <vector>
#include <weir/multi_device.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/pinned_pool.hpp>

using weir::multi_device::device_streams;
using weir::multi_device::per_device;
using weir::multi_device::replicated;

namespace {

std::vector<int> counted(std::size_t count, int first = 0) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), first);
    return all;
}

} // namespace

TEST_CASE("replicated: each device has the elements, and what one changed reaches the others") {
    for (bool const peers : {true, false}) {
        CAPTURE(peers);
        machine const here(peers);
        per_device<weir::device_pool> pools;
        device_streams const streams;
        replicated<int> xs(pools, streams, counted(1000));
        CHECK(xs.devices() == here.count);
        CHECK(xs.size() == 1000);
        for (int i = 0; i < here.count; ++i) {
            CHECK(xs[i].pool().device() == i);
            CHECK(xs[i].stream() == streams[i]);
            CHECK(xs[i].to_host_sync<std::vector>() == counted(1000));
        }
        int const last = here.count - 1;
        std::vector<int> const changed = counted(1000, 7);
        xs[last].assign(changed);
        xs.broadcast_async(last);
        xs[last].zero_async(); // after the copies have read it
        xs.synchronize();
        for (int i = 0; i < last; ++i)
            CHECK(xs[i].to_host_sync<std::vector>() == changed);
        CHECK(xs[last].to_host_sync<std::vector>() == std::vector<int>(1000));
        xs.assign(changed);
        xs.zero_async();
        for (int i = 0; i < here.count; ++i)
            CHECK(xs[i].to_host_sync<std::vector>() == std::vector<int>(1000));
    }
}

TEST_CASE("replicated: takes a container's elements, too, and has another size everywhere or nowhere") {
    machine const here;
    int const last = here.count - 1;
    per_device<weir::device_pool> pools(
        [&](int device) { return weir::pool_options{}.limit((device == last ? 4 : 64) * weir::MiB); });
    device_streams const streams;
    weir::device_vector<int> const source(pools[last], streams[last], counted(100));
    replicated<int> xs(pools, streams, source);
    CHECK(xs.size() == 100);
    xs.resize(200);
    for (int i = 0; i < here.count; ++i)
        CHECK(xs[i].size() == 200);
    CHECK_THROWS_AS(xs.resize(2 * weir::MiB), weir::out_of_memory); // 8 MiB
    for (int i = 0; i < here.count; ++i) {
        CHECK(xs[i].size() == 200);
        std::vector<int> found = xs[i].to_host_sync<std::vector>();
        found.resize(100);
        CHECK(found == counted(100));
    }
}

TEST_CASE("replicated: refuses devices that are not there and copies of different sizes") {
    machine const here;
    per_device<weir::device_pool> pools;
    device_streams const streams;
    replicated<int> xs(pools, streams, 10);
    CHECK_THROWS_AS(xs.broadcast_async(here.count), weir::usage_error);
    CHECK_THROWS_AS(xs[-5], weir::usage_error);
    replicated<int> const moved = std::move(xs);
    CHECK(xs.size() == 0); // NOLINT: moved from
    CHECK(xs.devices() == 0);
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(xs[0]); }), "since it was moved from");
    xs = replicated<int>(pools, streams, 10);
    CHECK(moved.size() == 10);
    if (here.count > 1) {
        xs[1].resize(11);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.broadcast_async(0); }),
                   "have different sizes, 11 and 10 elements; resize the whole object");
    }
}

TEST_CASE("replicated: copies stay in place, and are in the order of the streams of both sides") {
    for (std::uint64_t const seed : {0u, 1u, 2u, 3u}) {
        CAPTURE(seed);
        machine const here(true, seed);
        per_device<weir::device_pool> pools;
        weir::pinned_pool pinned;
        device_streams const streams;
        stream_of const mine(0);
        elsewhere const current(here);
        replicated<int> xs(pools, streams, 1000);
        std::vector<int*> places;
        for (int i = 0; i < here.count; ++i)
            places.push_back(xs[i].data());
        weir::device_vector<int> const filled(pools[0], mine, counted(1000));
        weir::pinned_vector<int> source(pinned, mine, 1000);
        filled.copy_to_async(source.data()); // on 'mine', which the copies below wait for
        xs.assign(source);
        weir::device_vector<int> const zeros(pools[0], mine, std::vector<int>(1000));
        zeros.copy_to_async(source.data()); // after the copies have read it
        xs.broadcast_async(current.device);
        for (int i = 0; i < here.count; ++i)
            CHECK(xs[i].data() == places[static_cast<std::size_t>(i)]);
        xs.assign(xs[0]);
        xs.broadcast_async(weir::any_device);
        for (int i = 0; i < here.count; ++i)
            CHECK(xs[i].to_host_sync<std::vector>() == counted(1000));
        weir::synchronize(mine);
    }
}

TEST_CASE("replicated: a broadcast is captured into a graph of several devices, whichever is current") {
    machine const here;
    if (here.count < 2)
        return;
    per_device<weir::device_pool> pools;
    device_streams const streams;
    replicated<int> xs(pools, streams, std::vector<int>{1, 2, 3});
    if (!pools.is_open(0, here.count - 1)) // what a graph copies has to be open
        return;
    streams.synchronize();
    elsewhere const there(here);
    support::recording graph(streams[0]);
    for (int i = 1; i < here.count; ++i)
        weir::order_after(streams[i], streams[0]);
    xs.broadcast_async(0);
    for (int i = 1; i < here.count; ++i)
        weir::order_after(streams[0], streams[i]);
    graph.end();
    for (int const first : {7, 9}) {
        xs[0].assign(std::vector<int>{first, 2, 3});
        graph.launch(streams[0]);
        for (int i = 0; i < here.count; ++i) {
            weir::order_after(streams[i], streams[0]);
            CHECK(xs[i].to_host_sync<std::vector>() == std::vector<int>{first, 2, 3});
        }
    }
}

TEST_CASE("replicated: if CUDA fails, all have one size, and 'resize' changes it everywhere or nowhere") {
    struct state {
        per_device<weir::device_pool> pools;
        device_streams streams;
        replicated<int> xs{pools, streams, counted(700)};
    };
    auto const make = [] { return std::make_unique<state>(); };
    auto const same = [](state& s, support::struck const& fault) {
        for (int i = 1; i < s.xs.devices(); ++i)
            CHECK(s.xs[i].size() == s.xs.size());
        if (fault.threw)
            CHECK((s.xs.size() == 700 || s.xs.size() == 600));
    };
    sweep_devices(make, [](state& s) { s.xs.resize(1 << 20); }, [&](state& s, support::struck const& fault) {
        same(s, fault);
        CHECK(s.xs[2].to_host_sync<std::vector>()[699] == 699);
    });
    sweep_devices(make, [](state& s) { s.xs.assign(std::vector<int>(600)); }, same);
    sweep_devices(make, [](state& s) { s.xs.broadcast_async(1); }, [&](state& s, support::struck const& fault) {
        same(s, fault);
        for (int i = 0; i < s.xs.devices(); ++i)
            CHECK(s.xs[i].to_host_sync<std::vector>() == counted(700));
    });
}
