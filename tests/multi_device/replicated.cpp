// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <cstddef>
#include <numeric>
#include <support/sentence.hpp>
#include <vector>
#include <weir/multi_device.hpp>
#include <weir/recipes/device_pool.hpp>

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
    if (here.count > 1) {
        xs[1].resize(11);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { xs.broadcast_async(0); }),
                   "have different sizes, 11 and 10 elements; resize the whole object");
    }
}
