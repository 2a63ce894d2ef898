// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <thread>
#include <type_traits>
#include <weir/runtime/devices.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using support::sentence_of;
using weir::any_device;
using weir::runtime::current_device;
using weir::runtime::device_free_bytes;
using weir::runtime::device_scope;

static_assert(!std::is_copy_constructible_v<device_scope> && !std::is_copy_assignable_v<device_scope>);
static_assert(!std::is_convertible_v<int, device_scope>);

namespace {

int current() {
    int device = -2;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    return device;
}

// Three devices in the simulator; as many as there are on a machine.
struct machine {
    machine() { CHECK(cudaGetDeviceCount(&devices) == cudaSuccess); }
    ~machine() { static_cast<void>(cudaSetDevice(0)); }
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world world{simulated_cuda::config{}.with_devices(3)};
#endif
    int devices = 0;
};

} // namespace

TEST_CASE("devices: current_device is CUDA's") {
    machine const here;
    for (int i = 0; i < here.devices; ++i) {
        REQUIRE(cudaSetDevice(i) == cudaSuccess);
        CHECK(current_device() == i);
    }
}

TEST_CASE("devices: a scope makes a device current until it ends") {
    machine const here;
    for (int before = 0; before < here.devices; ++before)
        for (int wanted = 0; wanted < here.devices; ++wanted) {
            REQUIRE(cudaSetDevice(before) == cudaSuccess);
            {
                device_scope const there(wanted);
                CHECK(current() == wanted);
            }
            CHECK(current() == before);
        }
}

TEST_CASE("devices: any_device leaves things as they are") {
    machine const here;
    int const last = here.devices - 1;
    REQUIRE(cudaSetDevice(last) == cudaSuccess);
    {
        device_scope const there(any_device);
        CHECK(current() == last);
    }
    CHECK(current() == last);
}

TEST_CASE("devices: scopes nest, and go back also when an exception passes") {
    machine const here;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    try {
        device_scope const outer(here.devices - 1);
        {
            device_scope const inner(0);
            CHECK(current() == 0);
        }
        CHECK(current() == here.devices - 1);
        throw std::runtime_error("through both");
    } catch (std::runtime_error const&) {
    }
    CHECK(current() == 0);
}

TEST_CASE("devices: a scope is of its own thread") {
    machine const here;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    device_scope const there(here.devices - 1);
    int seen = -1;
    std::thread([&] { seen = current_device(); }).join();
    CHECK(seen == 0);
    CHECK(current() == here.devices - 1);
}

TEST_CASE("devices: an device that there is not says what to do, and nothing changes") {
    machine const here;
    for (int wrong : {here.devices, here.devices + 100, -2}) {
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { device_scope const there(wrong); }),
                   "weir: cudaSetDevice failed with cudaErrorInvalidDevice (101): there is no device of that number");
        CHECK(current() == 0);
    }
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("devices: makes no call that it does not need") {
#ifdef WEIR_SIMULATED_CUDA
    machine const here;
    auto const before = simulated_cuda::calls();
    { device_scope const there(any_device); }
    CHECK(simulated_cuda::calls() == before);
    { device_scope const there(0); } // current already
    CHECK(simulated_cuda::calls() == before + 1);
    { device_scope const there(1); }
    CHECK(simulated_cuda::calls() == before + 4);
#endif
}

TEST_CASE("devices: each call may fail, and the device is as it was") {
    auto const runs = support::fault_sweep(
        [] {
            static_cast<void>(cudaSetDevice(0));
            return std::make_unique<int>(0);
        },
        [](int&) { device_scope const there(0); }, [](int&, support::struck const&) { CHECK(current() == 0); });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs == 2); // cudaGetDevice, once and for ever
    machine const here;
    for (std::uint64_t k = 1; k <= 2; ++k) { // the third call goes back, and there is nobody to tell
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        CHECK_THROWS_AS(device_scope(1), weir::cuda_error);
        CHECK(current() == 0);
    }
    simulated_cuda::fail_call(3, cudaErrorUnknown);
    { device_scope const there(1); }
    CHECK(cudaPeekAtLastError() == cudaSuccess);
#endif
    static_cast<void>(runs);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("devices: no GPU and an old driver say so") {
    for (bool none : {true, false}) {
        simulated_cuda::world world(none ? simulated_cuda::config{}.with_devices(0)
                                         : simulated_cuda::config{}.with_driver(11040));
        std::string const text = sentence_of<weir::cuda_error>([] { static_cast<void>(current_device()); });
        CHECK_SAYS(text, "weir: cudaGetDevice failed with");
        CHECK_SAYS(text, none ? "no GPU is visible" : "update the driver");
        world.forgive();
    }
}
#endif

TEST_CASE("devices: existing_device is the current one, or the one that is named, if there is one") {
    machine const here;
    CHECK(weir::runtime::device_count() == here.devices);
    CHECK(weir::runtime::existing_device(weir::any_device) == weir::runtime::current_device());
    CHECK(weir::runtime::existing_device(0) == 0);
    CHECK_THROWS_WITH_AS(weir::runtime::existing_device(here.devices), doctest::Contains("weir: there is no device "), weir::usage_error);
    CHECK_THROWS_WITH_AS(weir::runtime::existing_device(99), doctest::Contains("weir: there is no device 99; CUDA sees "),
                         weir::usage_error);
    for (int none : {-7, -2}) {
        CAPTURE(none);
        CHECK_THROWS_WITH_AS(weir::runtime::existing_device(none), "weir: the number of a device is 0 or more, or weir::any_device for the current one",
                             weir::usage_error);
    }
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("devices: existing_peer is a device that can use the other's memory; its own always can") {
    {
        machine const here;
        CHECK(weir::runtime::existing_peer(0, 0) == 0);
        CHECK(weir::runtime::existing_peer(weir::any_device, 0) == weir::runtime::current_device());
        CHECK_THROWS_WITH_AS(weir::runtime::existing_peer(99, 0), doctest::Contains("weir: there is no device 99; CUDA sees "), weir::usage_error);
        for (int other = 1; other < here.devices; ++other) {
            int able = 0;
            REQUIRE(cudaDeviceCanAccessPeer(&able, other, 0) == cudaSuccess);
            if (able != 0)
                CHECK(weir::runtime::existing_peer(other, 0) == other);
        }
    }
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world{simulated_cuda::config{}.with_devices(3).without_peers()};
    CHECK(weir::runtime::existing_peer(1, 1) == 1);
    CHECK_THROWS_WITH_AS(weir::runtime::existing_peer(2, 1),
                         "weir: device 2 cannot use memory of device 1 (cudaDeviceCanAccessPeer); give it a pool of its own, and "
                         "copy with cudaMemcpyPeerAsync",
                         weir::usage_error);
    simulated_cuda::fail_call("cudaDeviceCanAccessPeer", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(weir::runtime::existing_peer(2, 1), weir::cuda_error);
    CHECK(weir::runtime::existing_peer(1, 1) == 1); // nobody was asked
#endif
}

TEST_CASE("devices: says what is left on the device, and breaks no capture") {
    support::every_schedule([] {
        std::size_t const before = device_free_bytes(0);
        CHECK(before != SIZE_MAX);
        CHECK(before != 0);
        for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
            support::scoped_stream const s;
            support::capture graph(s, mode);
            CHECK(device_free_bytes(weir::any_device) != SIZE_MAX);
            CHECK(graph.unbroken());
        }
    });
}

TEST_CASE("devices: no more is left than there is in all, of a device or of the host") {
    support::every_schedule([] {
        CHECK(weir::runtime::device_total_bytes(0) != SIZE_MAX);
        CHECK(device_free_bytes(0) <= weir::runtime::device_total_bytes(weir::any_device));
        CHECK(weir::runtime::host_total_bytes() >= 64 << 20);
        CHECK(weir::runtime::host_total_bytes() <= weir::base::most_addresses);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("devices: is of the device that is named, whichever is current") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).with_memory(64 << 20),
                                      support::report_all);
    void* p = nullptr;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaMalloc(&p, 16 << 20) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    CHECK(device_free_bytes(0) == 64 << 20);
    CHECK(device_free_bytes(1) == 48 << 20);
    CHECK(device_free_bytes(weir::any_device) == 64 << 20);
    CHECK(weir::runtime::current_device() == 0);
    CHECK(device_free_bytes(7) == SIZE_MAX); // there is none
    CHECK(weir::runtime::device_total_bytes(1) == 64 << 20);
    CHECK(weir::runtime::device_total_bytes(7) == SIZE_MAX);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("devices: a scope that cannot switch back says so, after a second try") {
    for (auto const how : {simulated_cuda::lasting::once, simulated_cuda::lasting::for_ever}) {
        bool const stays = how == simulated_cuda::lasting::for_ever;
        simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
        std::string const said = support::standard_error_of([&] {
            device_scope const there(1);
            simulated_cuda::fail_call("cudaSetDevice", 1, cudaErrorUnknown, how);
        });
        simulated_cuda::clear_faults();
        CHECK(current() == (stays ? 1 : 0));
        CHECK(said.empty() == !stays);
        CHECK((!stays || said.find("weir: CUDA did not make device 0 this thread's current device again") == 0));
        CHECK(cudaSetDevice(0) == cudaSuccess);
    }
}

TEST_CASE("devices: where CUDA does not say, that is no error") {
    simulated_cuda::world world(simulated_cuda::config{}, support::report_all);
    for (std::uint64_t k = 1;; ++k) {
        std::uint64_t const before = simulated_cuda::failed_calls();
        simulated_cuda::fail_call(k, cudaErrorUnknown);
        std::size_t const left = device_free_bytes(0);
        bool const failed = simulated_cuda::failed_calls() != before;
        simulated_cuda::clear_faults();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        if (!failed) {
            CHECK(left == simulated_cuda::configuration().memory_bytes);
            CHECK(k == 3);
            break;
        }
    }
    simulated_cuda::inject_sticky(cudaErrorIllegalAddress);
    CHECK(device_free_bytes(0) == SIZE_MAX);
    world.forgive();
}

#endif
