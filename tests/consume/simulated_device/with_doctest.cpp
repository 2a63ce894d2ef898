// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A user's test on doctest, as examples/testing.md has it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <weir/simulated_device.hpp>
#include <weir/weir.hpp>

TEST_CASE("a buffer is zero") {
    simulated_device::world world{simulated_device::config{}.late()};
    {
        cudaStream_t const stream = nullptr;
        simulated_device::watched<weir::device_pool> pool;
        weir::device_vector<int> xs(pool, stream, 100);
        CHECK(cudaMemsetAsync(xs.data(), 0, 100 * sizeof(int), stream) == cudaSuccess);
        CHECK(xs.element_sync(99) == 0);
    }
    for (simulated_device::report const& each : world.finish())
        FAIL_CHECK(each.sentence);
}
