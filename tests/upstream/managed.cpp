// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is what cudaMallocManaged adds.

#include <cstdint>
#include <cstring>
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
#include <weir/upstream/managed.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::MiB;
using weir::upstream::managed;

static_assert(managed::space == weir::memory_space::managed);
static_assert(std::is_nothrow_copy_constructible_v<managed> && !std::is_convertible_v<int, managed>);
static_assert(weir::contract::returns<bool, weir::contract::has_release, managed>);
// Reachable from every device: streams of any of them may share it.
static_assert(!weir::contract::holds<weir::contract::has_device_number, managed>);

TEST_CASE("managed: the host and the device reach the same bytes") {
    support::every_schedule([] {
        managed upstream;
        support::scoped_stream const s;
        auto* const chunk = static_cast<unsigned char*>(upstream.acquire(2 * MiB));
        REQUIRE(chunk != nullptr);
        cudaPointerAttributes attributes{};
        check_cuda(cudaPointerGetAttributes(&attributes, chunk), "cudaPointerGetAttributes");
        CHECK(attributes.type == cudaMemoryTypeManaged);
        std::memset(chunk, 1, 2 * MiB);
        check_cuda(cudaMemsetAsync(chunk + 100, 7, 200, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(chunk[99] == 1);
        CHECK(chunk[100] == 7);
        CHECK(chunk[299] == 7);
        CHECK(chunk[300] == 1);
        CHECK(upstream.release(chunk, 2 * MiB));
    });
}

TEST_CASE("managed: is made under the device that was named, or current then") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    for (int i = 0; i < devices; ++i) {
        managed upstream(i);
        void* const chunk = upstream.acquire(2 * MiB);
        cudaPointerAttributes attributes{};
        check_cuda(cudaPointerGetAttributes(&attributes, chunk), "cudaPointerGetAttributes");
        CHECK(attributes.device == i);
        CHECK(weir::runtime::current_device() == 0);
        CHECK(upstream.release(chunk, 2 * MiB));
    }
    CHECK_SAYS(sentence_of<weir::usage_error>([] { managed const nowhere(12345); }), "weir: there is no device 12345");
}

TEST_CASE("managed: the pages of its chunks prefer to be where it was told") {
    support::every_schedule([] {
        auto const preferred = [](void* chunk) {
            int at = -99;
            check_cuda(cudaMemRangeGetAttribute(&at, sizeof at, cudaMemRangeAttributePreferredLocation, chunk, 4 * MiB),
                  "cudaMemRangeGetAttribute");
            return at;
        };
        managed nowhere, host(0, weir::memory_location::host()), device(0, weir::memory_location::device(0));
        void* const chunks[] = {nowhere.acquire(4 * MiB), host.acquire(4 * MiB), device.acquire(4 * MiB)};
        CHECK(preferred(chunks[0]) == cudaInvalidDeviceId);
        CHECK(preferred(chunks[1]) == cudaCpuDeviceId);
        CHECK(preferred(chunks[2]) == 0);
        for (void* each : chunks)
            CHECK(nowhere.release(each, 4 * MiB));
        managed wrong(0, weir::memory_location::device(12345));
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(wrong.acquire(4 * MiB)); }),
                   "weir: cudaMemAdvise failed with");
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }); // the world reports what leaks
}

#ifdef WEIR_SIMULATED_CUDA // asking a GPU for more managed memory than it has can hang it
TEST_CASE("managed: more than there is is null, and no error is left behind") {
    simulated_cuda::world const world;
    managed upstream;
    for (std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX & ~(2 * MiB - 1)}) {
        CHECK(upstream.acquire(bytes) == nullptr);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    simulated_cuda::fail_call("cudaMallocManaged", 1, cudaErrorNotSupported);
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { upstream.acquire(2 * MiB); }), "this device has no managed memory; use pinned_pool");
}
#endif

TEST_CASE("managed: neither acquire nor release breaks a capture, from any thread") {
    support::every_schedule([] {
        support::scoped_stream const s;
        managed upstream;
        support::capture graph(s);
        auto const both = [&] {
            void* const chunk = upstream.acquire(2 * MiB);
            CHECK(chunk != nullptr);
            CHECK(upstream.release(chunk, 2 * MiB));
        };
        both();
        std::thread(both).join();
        CHECK(graph.unbroken());
    });
}

TEST_CASE("managed: every call may fail: nothing is acquired then, and what was refused can be given back later") {
    struct state {
        managed upstream;
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
                                     });
    struct advised : state {
        managed host{0, weir::memory_location::host()};
    };
    runs += support::fault_sweep([] { return std::make_unique<advised>(); },
                                 [](advised& x) { x.other = x.host.acquire(2 * MiB); },
                                 [](advised& x, support::struck const& fault) {
                                     CHECK((x.other == nullptr) == fault.threw);
                                     if (x.other)
                                         CHECK(x.upstream.release(x.other, 2 * MiB));
                                     CHECK(x.upstream.release(x.chunk, 2 * MiB));
                                 });
    runs += support::fault_sweep(prepare, [](state& x) { x.released = x.upstream.release(x.chunk, 2 * MiB); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     if (!x.released)
                                         CHECK(x.upstream.release(x.chunk, 2 * MiB));
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 13);
#endif
    static_cast<void>(runs);
}
