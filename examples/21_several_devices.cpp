// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Several devices: an array that lies on all of them, which one device filled, and where each piece went by which way.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device. It runs with one device as well.

#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>

using namespace weir::multi_device;

char const* name_of(route way) {
    switch (way) {
    case route::no_copy: return "got nothing";
    case route::same_device: return "stays";
    case route::link: return "over the link";
    case route::through_the_host: return "through the host";
    case route::up_to_cuda: return "as CUDA decides";
    }
    return "";
}

int main() try {
    per_device<weir::device_pool> pools(weir::pool_options{}.limit(weir::GiB)); // of each device, open to the others
    device_streams const streams;

    std::vector<int> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0);
    weir::device_vector<int> const whole(pools[0], streams[0], numbers);

    sharded_vector<int> xs(pools, streams, whole.size());
    xs.scatter(whole); // each device's stream waits for that of 'whole'
    for (int i = 0; i < xs.devices(); ++i)
        std::printf("device %d: %zu elements from %zu on, %s\n", i, xs[i].size(), xs.first(i), name_of(xs.last_route(0, i)));

    xs.reshard({whole.size()}); // all back to device 0; the others hold nothing
    std::printf("the last of %zu is %d\n", xs[0].size(), xs[0].element_sync(xs.size() - 1));
    pools.visit([](weir::device_pool& each) { std::printf("%s\n", each.report().c_str()); });
} catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
