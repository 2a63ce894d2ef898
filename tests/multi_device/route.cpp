// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <weir/base/error.hpp>
#include <weir/multi_device.hpp>

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
