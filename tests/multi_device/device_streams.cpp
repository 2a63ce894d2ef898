// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"

#include <cuda_runtime_api.h>
#include <memory>
#include <support/capture.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <utility>
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

TEST_CASE("device_streams: a stream of another device is refused, and where none is named there is one of its own") {
    machine const here;
    stream_of const first(0);
    device_streams mixed([&](int device) { return device == 0 ? weir::stream_ref(first) : weir::stream_ref(weir::on_host); });
    CHECK(mixed[0] == weir::stream_ref(first));
    for (int i = 1; i < here.count; ++i)
        CHECK(weir::runtime::device_of(mixed[i]) == i);
    if (here.count > 1)
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { device_streams([&](int) { return cudaStream_t(first); }); }),
                   "weir: the stream that was named for device 1 is one of device 0");
    device_streams const moved = std::move(mixed);
    CHECK(moved.size() == here.count);
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(mixed[0]); }), // NOLINT: moved from
               "has nothing on device 0, since it was moved from");
}

TEST_CASE("device_streams: a captured stream may be named, which breaks no capture; it cannot be waited for, the others are") {
    machine const here;
    stream_of const captured(0);
    support::capture capture(captured);
    int const last = here.count - 1;
    device_streams const streams(
        [&](int device) { return device == 0 ? weir::stream_ref(captured) : weir::stream_ref(weir::on_host); });
    int ran = 0;
    if (last != 0)
        CHECK(cudaLaunchHostFunc(streams[last], [](void* p) { *static_cast<int*>(p) = 1; }, &ran) == cudaSuccess);
    CHECK_THROWS_AS(streams.synchronize(), weir::usage_error);
    CHECK(ran == (last != 0));
    CHECK(capture.unbroken());
}

TEST_CASE("device_streams: a CUDA that fails leaves no stream behind, and the current device is what it was") {
    sweep_devices([] { return std::make_unique<int>(0); },
                  [](int&) {
                      device_streams const streams;
                      streams.synchronize();
                      device_streams const same([&](int device) { return streams[device]; });
                  },
                  [](int&, support::struck const&) {});
}
