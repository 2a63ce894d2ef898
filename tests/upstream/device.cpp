// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is what cudaMalloc adds.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <weir/contract/upstream_slot.hpp>
#include <weir/upstream/device.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::MiB;
using weir::upstream::device;

static_assert(device::space == weir::memory_space::device);
static_assert(std::is_nothrow_copy_constructible_v<device> && !std::is_convertible_v<int, device>);
static_assert(weir::contract::returns<bool, weir::contract::has_release, device>);

namespace {

int device_of_memory(void const* p) {
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
    CHECK(attributes.type == cudaMemoryTypeDevice);
    return attributes.device;
}

} // namespace

TEST_CASE("device: hands out device memory that work can use, and takes it back") {
    support::every_schedule([] {
        device upstream;
        CHECK(upstream.device_number() == 0);
        support::scoped_stream const s;
        void* const chunk = upstream.acquire(4 * MiB);
        REQUIRE(chunk != nullptr);
        CHECK(device_of_memory(chunk) == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(chunk) % device::alignment == 0);
        check_cuda(cudaMemsetAsync(chunk, 3, 4 * MiB, s), "cudaMemsetAsync");
        unsigned char last = 0;
        check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(chunk) + 4 * MiB - 1, 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        CHECK(upstream.release(chunk, 4 * MiB)); // waits for the work
        CHECK(last == 3);
    });
}

TEST_CASE("device: chunks live on the device that was named, or current, when the upstream was made") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(3));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    for (int i = 0; i < devices; ++i) {
        check_cuda(cudaSetDevice(i), "cudaSetDevice");
        device current, named(devices - 1 - i);
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        CHECK(current.device_number() == i);
        CHECK(named.device_number() == devices - 1 - i);
        device copy = current;
        CHECK(copy.device_number() == i);
        for (device* each : {&current, &named, &copy}) {
            void* const chunk = each->acquire(2 * MiB);
            CHECK(device_of_memory(chunk) == each->device_number());
            CHECK(weir::runtime::current_device() == 0);
            CHECK(each->release(chunk, 2 * MiB));
            CHECK(weir::runtime::current_device() == 0);
        }
    }
}

TEST_CASE("device: a device that there is not says what to do") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    CHECK_SAYS(sentence_of<weir::usage_error>([] { device const upstream(12345); }), "weir: there is no device 12345; CUDA sees ");
    CHECK_SAYS(sentence_of<weir::usage_error>([] { device const upstream(-7); }), "weir: the number of a device is 0 or more");
}

TEST_CASE("device: more than the device has is null, and no error is left behind" * doctest::test_suite("fills the card")) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * MiB));
#endif
    device upstream;
    for (std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX & ~(2 * MiB - 1), std::size_t{1} << 62}) {
        CHECK(upstream.acquire(bytes) == nullptr);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
#ifdef WEIR_SIMULATED_CUDA
    void* const most = upstream.acquire(64 * MiB);
    CHECK(most != nullptr);
    CHECK(upstream.acquire(2 * MiB) == nullptr);
    CHECK(upstream.release(most, 64 * MiB));
    void* const again = upstream.acquire(64 * MiB);
    CHECK(again != nullptr);
    CHECK(upstream.release(again, 64 * MiB));
#endif
}

TEST_CASE("device: neither acquire nor release breaks a capture, from any thread") {
    support::every_schedule([] {
        support::scoped_stream const s;
        device upstream;
        void* const before = upstream.acquire(2 * MiB);
        support::capture graph(s);
        void* const chunk = upstream.acquire(2 * MiB);
        CHECK(chunk != nullptr);
        CHECK(upstream.release(chunk, 2 * MiB));
        std::thread([&] {
            void* const other = upstream.acquire(2 * MiB);
            CHECK(other != nullptr);
            CHECK(upstream.release(other, 2 * MiB));
            CHECK(upstream.release(before, 2 * MiB));
        }).join();
        CHECK(graph.unbroken());
    });
}

TEST_CASE("device: every call may fail: nothing is acquired then, and what was refused can be given back later") {
    struct state {
        device upstream;
        void* chunk = upstream.acquire(2 * MiB);
        void* other = nullptr;
        bool released = false;
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto runs = support::fault_sweep(prepare, [](state& x) { x.other = x.upstream.acquire(2 * MiB); },
                                     [](state& x, support::struck const& fault) {
                                         CHECK((x.other == nullptr) == fault.threw);
                                         if (x.other)
                                             CHECK(x.upstream.release(x.other, 2 * MiB));
                                         CHECK(x.upstream.release(x.chunk, 2 * MiB));
                                         CHECK(weir::runtime::current_device() == 0);
                                     });
    runs += support::fault_sweep(prepare, [](state& x) { x.released = x.upstream.release(x.chunk, 2 * MiB); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     if (!x.released)
                                         CHECK(x.upstream.release(x.chunk, 2 * MiB));
                                 });
    runs += support::fault_sweep([] { return std::make_unique<int>(0); }, [](int&) { static_cast<void>(device()); },
                                 [](int&, support::struck const& fault) { CHECK(fault.threw == !fault.calls.empty()); });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 16);
#endif
    static_cast<void>(runs);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("device: no GPU and an old driver say so where the upstream is made") {
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
        CHECK_SAYS(sentence_of<weir::cuda_error>([] { static_cast<void>(device()); }),
                   "no GPU is visible; check 'nvidia-smi' and CUDA_VISIBLE_DEVICES, or use a host pool");
        world.forgive();
    }
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_driver(11080));
        CHECK_SAYS(sentence_of<weir::cuda_error>([] { static_cast<void>(device()); }),
                   "it is older than the CUDA runtime that this program was built with; install or update the driver");
        world.forgive();
    }
}

TEST_CASE("device: a lost device takes nothing back, and says so with false") {
    simulated_cuda::world world;
    device upstream;
    void* const chunk = upstream.acquire(2 * MiB);
    simulated_cuda::inject_sticky(cudaErrorIllegalAddress);
    CHECK_THROWS_AS(static_cast<void>(upstream.acquire(2 * MiB)), weir::cuda_error);
    CHECK_FALSE(upstream.release(chunk, 2 * MiB));
    world.forgive();
}
#endif
