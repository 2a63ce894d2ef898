// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <weir/runtime/device_memory.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using weir::device_free_bytes;

TEST_CASE("device_memory: says what is left on the device, and breaks no capture") {
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

TEST_CASE("device_memory: no more is left than there is in all, of a device or of the host") {
    support::every_schedule([] {
        CHECK(weir::device_total_bytes(0) != SIZE_MAX);
        CHECK(device_free_bytes(0) <= weir::device_total_bytes(weir::any_device));
        CHECK(weir::host_total_bytes() >= 64 << 20);
        CHECK(weir::host_total_bytes() <= weir::most_addresses);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("device_memory: is of the device that is named, whichever is current") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).with_memory(64 << 20),
                                      support::report_all);
    void* p = nullptr;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaMalloc(&p, 16 << 20) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    CHECK(device_free_bytes(0) == 64 << 20);
    CHECK(device_free_bytes(1) == 48 << 20);
    CHECK(device_free_bytes(weir::any_device) == 64 << 20);
    CHECK(weir::current_device() == 0);
    CHECK(device_free_bytes(7) == SIZE_MAX); // there is none
    CHECK(weir::device_total_bytes(1) == 64 << 20);
    CHECK(weir::device_total_bytes(7) == SIZE_MAX);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("device_memory: where CUDA does not say, that is no error") {
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
