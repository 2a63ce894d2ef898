// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <utility>
#include <weir/base/error.hpp>
#include <weir/container/buffer.hpp>
#include <weir/multi_device.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/pinned_pool.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::multi_device::route;
using weir::multi_device::route_between;

TEST_CASE("route: over the link where devices reach each other, else through the host") {
    for (bool const peers : {true, false}) {
        CAPTURE(peers);
        machine const here(peers);
        CHECK(route_between(0, 0) == route::same_device);
        CHECK(route_between(weir::any_device, 0) == route::same_device); // the current one
        CHECK_THROWS_AS(route_between(0, here.count), weir::usage_error);
        CHECK_THROWS_AS(route_between(-3, 0), weir::usage_error);
        for (int i = 1; i < here.count; ++i) {
            int able = 0;
            CHECK(cudaDeviceCanAccessPeer(&able, i, 0) == cudaSuccess);
            CHECK(route_between(0, i) == (able != 0 ? route::link : route::through_the_host));
#ifdef WEIR_SIMULATED_CUDA
            CHECK((able != 0) == peers);
#endif
        }
    }
}

namespace {
using weir::MiB;
using weir::multi_device::device_streams;
using weir::multi_device::peer_access;
using weir::multi_device::per_device;
using weir::multi_device::route_of;
} // namespace

TEST_CASE("route: a copy takes the link if the memory of both sides is open to the other side") {
    for (bool const peers : {true, false}) {
        CAPTURE(peers);
        machine const here(peers);
        if (here.count < 2)
            return;
        bool const can = weir::runtime::can_reach(0, 1) && weir::runtime::can_reach(1, 0);
        device_streams const streams;
        weir::upstream::virtual_memory<> first(0), second(1);
        weir::device_pool a(first), b(second);
        weir::device_buffer const x(a, streams[0], 100), y(b, streams[1], 100);
        auto const ways = [&] { return std::pair(route_of(x.data(), 0, y.data(), 1), route_of(y.data(), 1, x.data(), 0)); };
        auto const both = [](route each) { return std::pair(each, each); };
        CHECK(ways() == both(route::through_the_host)); // though the devices can
        CHECK(first.try_enable_access_from(1) == can);
        CHECK(ways() == both(can ? route::link : route::through_the_host)); // one side is enough
        CHECK(second.try_enable_access_from(0) == can);
        CHECK(ways() == both(can ? route::link : route::through_the_host));
        CHECK(route_of(x.data(), 0, x.data(), 0) == route::same_device);
        CHECK_THROWS_AS(route_of(x.data(), 0, x.data(), here.count), weir::usage_error);
        void* plain[2] = {};
        for (int each : {0, 1}) {
            weir::runtime::device_scope const there(each);
            CHECK(cudaMalloc(&plain[each], 100) == cudaSuccess);
        }
        weir::upstream::virtual_memory<> third(0);
        weir::device_pool c(third);
        weir::device_buffer const closed(c, streams[0], 100);
        CHECK(route_of(plain[1], 1, plain[0], 0) == (can ? route::up_to_cuda : route::through_the_host));
        CHECK(route_of(plain[1], 1, closed.data(), 0) == (can ? route::up_to_cuda : route::through_the_host));
        CHECK(route_of(plain[1], 1, x.data(), 0) == (can ? route::link : route::through_the_host));
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::fail_call("cudaDeviceCanAccessPeer", 1, cudaErrorUnknown);
        CHECK(weir::multi_device::detail::mapped_access().route_of(plain[1], 1, plain[0], 0) == route::up_to_cuda);
#endif
        for (void* const each : plain)
            CHECK(cudaFree(each) == cudaSuccess);
    }
}

TEST_CASE("route: containers tell which way their last copies took, and pools that are open to each other take the link") {
    for (peer_access const access : {peer_access::where_possible, peer_access::none})
        for (bool const peers : {true, false}) {
            CAPTURE(peers);
            machine const here(peers);
            if (here.count < 2)
                return;
            bool const can = weir::runtime::can_reach(0, 1) && weir::runtime::can_reach(1, 0);
            route const way = can && access == peer_access::where_possible ? route::link : route::through_the_host;
            per_device<weir::device_pool> pools({}, access);
            device_streams const streams;
            weir::multi_device::sharded_vector<int> xs(pools, streams, {1000});
            CHECK(xs.last_route(0, 1) == route::no_copy);
            xs.zero_async();
            xs.reshard({0, 1000});
            CHECK(xs.last_route(0, 1) == way); // which says so, though no memory is left on device 0
            CHECK(xs.last_route(1, 0) == route::no_copy);
            weir::device_vector<int> whole(pools[0], streams[0], 1000);
            xs.gather_async(whole);
            CHECK(xs.last_route(1, 0) == way);
            CHECK_THROWS_AS(xs.last_route(0, here.count), weir::usage_error);
            weir::multi_device::replicated<int> ys(pools, streams, whole);
            CHECK(ys.last_route(0, 0) == route::same_device);
            CHECK(ys.last_route(0, 1) == way);
            weir::pinned_pool staging;
            weir::pinned_vector<int> pinned(staging, streams[0], 1000);
            ys.assign(pinned); // from no device
            CHECK(ys.last_route(1, 0) == route::no_copy);
            ys.broadcast_async(1);
            CHECK(ys.last_route(1, 0) == way);
            streams.synchronize();
        }
}
