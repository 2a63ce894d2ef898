// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <cuda_runtime_api.h>
#include <memory>
#include <support/fault_sweep.hpp>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/multi_device.hpp>

using weir::multi_device::device_streams;

TEST_CASE("device_streams: a stream of its own on each device, the same in each copy") {
    machine const here;
    std::unique_ptr<device_streams> first = std::make_unique<device_streams>();
    device_streams const copy = *first;
    CHECK(copy.size() == here.count);
    for (int i = 0; i < here.count; ++i) {
        CHECK(copy[i] == (*first)[i]);
        CHECK(!weir::runtime::is_default_stream(copy[i]));
        CHECK(weir::runtime::device_of(copy[i]) == i);
    }
    first.reset();
    for (int i = 0; i < here.count; ++i)
        CHECK(cudaStreamQuery(copy[i].get()) == cudaSuccess);
    copy.synchronize();
    CHECK_THROWS_AS(copy[here.count], weir::usage_error);
}

TEST_CASE("device_streams: those that the caller names, and default streams, which are each device's own") {
    machine const here;
    std::vector<cudaStream_t> mine(static_cast<std::size_t>(here.count));
    for (int i = 0; i < here.count; ++i) {
        CHECK(cudaSetDevice(i) == cudaSuccess);
        CHECK(cudaStreamCreate(&mine[static_cast<std::size_t>(i)]) == cudaSuccess);
    }
    {
        device_streams const streams([&](int device) { return mine[static_cast<std::size_t>(device)]; });
        for (int i = 0; i < here.count; ++i)
            CHECK(streams[i] == mine[static_cast<std::size_t>(i)]);
        device_streams const defaults([](int) { return weir::default_stream; });
        defaults.synchronize();
        int now = -1;
        CHECK(cudaGetDevice(&now) == cudaSuccess);
        CHECK(now == here.count - 1);
    }
    for (cudaStream_t const each : mine)
        CHECK(cudaStreamDestroy(each) == cudaSuccess);
}

TEST_CASE("device_streams: a CUDA that fails leaves no stream behind") {
    support::fault_sweep([] { return std::make_unique<int>(0); },
                         [](int&) {
                             device_streams const streams;
                             streams.synchronize();
                         },
                         [](int&, support::struck const&) {});
}
