// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The simulator's own promises: calls that fail, devices that are lost or not there, and memory that costs
// nothing until it is written.

#include "simulated_cuda/simulated_cuda.hpp"

#include <doctest/doctest.h>

#include <cstring>

namespace sim = simulated_cuda;

namespace {

cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

} // namespace

TEST_CASE("simulated_cuda: the k-th call fails, once, without effect") {
    sim::world world;
    void* p = nullptr;
    sim::fail_call(2, cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&p, 256) == cudaSuccess);
    void* q = nullptr;
    CHECK(cudaMalloc(&q, 256) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(q == nullptr);
    CHECK(cudaMalloc(&q, 256) == cudaSuccess);
    CHECK(sim::failed_calls() == 1);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(cudaFree(q) == cudaSuccess);
}

TEST_CASE("simulated_cuda: from the k-th call on all fail, until cleared") {
    sim::world world;
    int device = -1;
    sim::fail_call(2, cudaErrorUnknown, sim::lasting::for_ever);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(cudaGetDevice(&device) == cudaErrorUnknown);
    CHECK(cudaSetDevice(0) == cudaErrorUnknown);
    sim::clear_faults();
    CHECK(cudaGetDevice(&device) == cudaSuccess);
}

TEST_CASE("simulated_cuda: the k-th call of one function fails") {
    sim::world world;
    void* p = nullptr;
    void* q = nullptr;
    sim::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(cudaMalloc(&p, 256) == cudaSuccess);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(cudaMalloc(&q, 256) == cudaErrorMemoryAllocation);
    CHECK(sim::calls("cudaMalloc") == 2);
    CHECK(sim::calls("cudaFree") == 2);
    CHECK(sim::calls() == 4);
    CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("simulated_cuda: launches and gates are the test's own and are not counted") {
    sim::world world;
    sim::fail_call(1, cudaErrorUnknown);
    CHECK(sim::launch(nullptr, {}, {}, {}) == cudaSuccess);
    sim::gate gate;
    CHECK(gate.close(nullptr) == cudaSuccess);
    gate.open();
    CHECK(sim::calls() == 0);
    sim::clear_faults();
}

TEST_CASE("simulated_cuda: a sweep of faults reaches every call") {
    int sweeps = 0;
    for (std::uint64_t k = 1;; ++k) {
        sim::world world({}, [](auto const&) {});
        sim::fail_call(k, cudaErrorUnknown);
        cudaStream_t stream = nullptr;
        void* p = nullptr;
        bool const failed = cudaStreamCreate(&stream) != cudaSuccess || cudaMalloc(&p, 256) != cudaSuccess ||
                            cudaMemsetAsync(p, 0, 256, stream) != cudaSuccess ||
                            cudaStreamSynchronize(stream) != cudaSuccess;
        if (!failed)
            break;
        ++sweeps;
        CHECK(sim::failed_calls() == 1);
    }
    CHECK(sweeps == 4);
}

TEST_CASE("simulated_cuda: a lost device answers so to every call until it is reset") {
    sim::world world(sim::config{}.with_devices(2));
    sim::inject_sticky(cudaErrorIllegalAddress);
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 256) == cudaErrorIllegalAddress);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(cudaDeviceReset() == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("simulated_cuda: work that fails is told by a later call") {
    sim::world world(sim::config{}.late());
    cudaStream_t const stream = make_stream();
    int ran = 0;
    CHECK(sim::launch_failing(stream, cudaErrorLaunchFailure) == cudaSuccess);
    CHECK(sim::launch(stream, {}, {}, [&] { ++ran; }) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
    CHECK(cudaMemset(nullptr, 0, 0) == cudaErrorLaunchFailure);
    CHECK(ran == 0);
    CHECK(cudaDeviceReset() == cudaSuccess);
}

TEST_CASE("simulated_cuda: no device, and a driver too old") {
    int count = 9;
    void* p = nullptr;
    {
        sim::world world(sim::config{}.with_devices(0));
        CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
        CHECK(count == 0);
        CHECK(cudaMalloc(&p, 256) == cudaErrorNoDevice);
        CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
    }
    sim::world world(sim::config{}.with_driver(11080));
    CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    CHECK(cudaMalloc(&p, 256) == cudaErrorInsufficientDriver);
    int version = 0;
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
    CHECK(version == 11080);
}

// ---- memory -----------------------------------------------------------------------------------------------

TEST_CASE("simulated_cuda: memory is counted in pages of 2 MiB and runs out without harm") {
    constexpr std::size_t MiB = std::size_t(1) << 20;
    sim::world world(sim::config{}.with_memory(16 * MiB));
    std::vector<void*> blocks;
    void* p = nullptr;
    while (cudaMalloc(&p, 3 * MiB) == cudaSuccess)
        blocks.push_back(p);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(blocks.size() == 4);
    std::size_t free = 9;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == 0);
    CHECK(total == 16 * MiB);
    CHECK(cudaFree(blocks[1]) == cudaSuccess);
    CHECK(cudaMalloc(&p, 512) == cudaSuccess);
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == 2 * MiB);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == 4 * MiB);
    for (std::size_t const at : {std::size_t(0), std::size_t(2), std::size_t(3)})
        CHECK(cudaFree(blocks[at]) == cudaSuccess);
}

TEST_CASE("simulated_cuda: neighbours in time are neighbours in memory") {
    sim::world world;
    void* one = nullptr;
    void* other = nullptr;
    CHECK(cudaMalloc(&one, std::size_t(4) << 20) == cudaSuccess);
    CHECK(cudaMalloc(&other, std::size_t(4) << 20) == cudaSuccess);
    CHECK(static_cast<char*>(other) - static_cast<char*>(one) == 4 << 20);
    CHECK(cudaFree(one) == cudaSuccess);
    CHECK(cudaFree(other) == cudaSuccess);
}

TEST_CASE("simulated_cuda: memory that nobody writes costs nothing") {
    sim::world world;
    std::vector<void*> blocks(60);
    for (void*& p : blocks)
        REQUIRE(cudaMalloc(&p, std::size_t(1) << 30) == cudaSuccess);
    auto* const last = static_cast<char*>(blocks.back()) + (1 << 29);
    CHECK(cudaMemset(last, 3, 100) == cudaSuccess);
    char back = 0;
    CHECK(cudaMemcpy(&back, last + 99, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(back == 3);
    for (void* const p : blocks)
        CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("simulated_cuda: device memory is shown to the host when asked") {
    sim::world world(sim::config{}.visible());
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 4096) == cudaSuccess);
    std::memset(p, 5, 4096);
    char back = 0;
    CHECK(cudaMemcpy(&back, static_cast<char*>(p) + 4095, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(back == 5);
    CHECK(*static_cast<char*>(sim::backing(p)) == 5);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(cudaMalloc(&p, 4096) == cudaSuccess);
    CHECK(*static_cast<char*>(p) == 0);
    CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("simulated_cuda: kernels compute through the backing store") {
    sim::world world(sim::config{}.late());
    cudaStream_t const stream = make_stream();
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 4096) == cudaSuccess);
    auto* const numbers = static_cast<int*>(sim::backing(p));
    for (int round = 0; round < 3; ++round)
        CHECK(sim::launch(
                  stream, {{p, 4}}, {{p, 4}}, [numbers] { ++*numbers; }, "increment") == cudaSuccess);
    int back = -1;
    CHECK(cudaMemcpyAsync(&back, p, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(back == 3);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}
