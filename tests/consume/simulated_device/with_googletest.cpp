// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A user's test on GoogleTest, as examples/testing.md has it.
#include <gtest/gtest.h>
#include <weir/simulated_device.hpp>
#include <weir/weir.hpp>

struct on_device : testing::Test {
    simulated_device::world world{simulated_device::config{}.late()};
    void TearDown() override {
        for (simulated_device::report const& each : world.finish())
            ADD_FAILURE() << each.sentence;
    }
};

TEST_F(on_device, a_buffer_is_zero) {
    cudaStream_t const stream = nullptr;
    simulated_device::watched<weir::device_pool> pool;
    weir::device_vector<int> xs(pool, stream, 100);
    EXPECT_EQ(cudaMemsetAsync(xs.data(), 0, 100 * sizeof(int), stream), cudaSuccess);
    EXPECT_EQ(xs.element_sync(99), 0);
}
