// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a null stream name in a program that is compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc's
// --default-stream per-thread)? Each thread's own stream: memory does not pass from one to another unordered, no thread's
// is kept back for it, and a capture of it is seen.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <set>
#include <support/every_schedule.hpp>
#include <thread>
#include <type_traits>
#include <weir/weir.hpp>

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "this file is of the program that is compiled with per-thread default streams"
#endif

using namespace weir;
using namespace weir::runtime;

namespace {

constexpr cudaStream_t null = nullptr;

} // namespace

TEST_CASE("per-thread default streams: null is the thread's own stream, and the legacy one has its name") {
    support::every_schedule([] {
        CHECK(is_default_stream(null));
        CHECK(is_per_thread(null));
        CHECK_FALSE(is_legacy(null));
        CHECK(stream_ref(null) == stream_ref(weir::default_stream));
        CHECK(is_legacy(cudaStreamLegacy));
        CHECK_FALSE(is_per_thread(on_host));
        CHECK_FALSE(is_legacy(on_host));
        CHECK(stream_ref(null) == stream_ref(cudaStreamPerThread));
        CHECK_FALSE(stream_ref(null) == stream_ref(cudaStreamLegacy));
    });
}

TEST_CASE_TEMPLATE("per-thread default streams: a pool serves null as it does any stream", Pool, device_pool, promised_device_pool,
                   compact_device_pool, pinned_pool, driver_pool) {
    support::every_schedule([] {
        Pool pool;
        for (int turn = 0; turn < 100; ++turn) {
            for (std::size_t const bytes : {std::size_t{256}, 64 * KiB, 5 * MiB}) {
                void* const p = pool.allocate(null, bytes);
                CHECK(cudaMemsetAsync(p, turn, bytes, null) == cudaSuccess);
                pool.deallocate(null, p, bytes);
            }
            CHECK(cudaStreamSynchronize(null) == cudaSuccess);
        }
        CHECK(pool.reserved_bytes() <= 128 * MiB); // of the 500 that were asked for
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("per-thread default streams: what one thread freed goes to another when its stream has passed, not before") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    device_pool pool;
    simulated_cuda::gate gate;
    void* const mine = pool.allocate(null, 5 * MiB);
    REQUIRE(gate.close(cudaStreamPerThread) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(mine, 1, 5 * MiB, null) == cudaSuccess);
    pool.deallocate(null, mine, 5 * MiB);
    CHECK(pool.allocate(null, 5 * MiB) == mine); // in the order of its own stream at once
    pool.deallocate(null, mine, 5 * MiB);
    void* theirs = nullptr;
    std::thread([&] {
        theirs = pool.allocate(null, 5 * MiB);
        CHECK(cudaMemsetAsync(theirs, 2, 5 * MiB, null) == cudaSuccess);
        pool.deallocate(null, theirs, 5 * MiB);
    }).join();
    CHECK(theirs != mine);
    gate.open();
    simulated_cuda::drain();
    std::size_t const reserved = pool.reserved_bytes();
    std::thread([&] { // both threads' streams have passed
        void* const both[] = {pool.allocate(null, 5 * MiB), pool.allocate(null, 5 * MiB)};
        for (void* each : both)
            pool.deallocate(null, each, 5 * MiB);
    }).join();
    CHECK(pool.reserved_bytes() == reserved);
}

TEST_CASE("per-thread default streams: a thread that ends without a word leaves a few blocks, until the pool settles") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    device_pool pool;
    simulated_cuda::gate gate;
    void* theirs = nullptr;
    std::thread([&] {
        for (int turn = 0; turn < 200; ++turn) // past the frees of a young stream, which keeps nothing
            pool.deallocate(null, pool.allocate(null, 4 * KiB), 4 * KiB);
        std::uint64_t const before = simulated_cuda::calls("cudaEventRecord");
        theirs = pool.allocate(null, 4 * KiB);
        REQUIRE(gate.close(cudaStreamPerThread) == cudaSuccess);
        REQUIRE(cudaMemsetAsync(theirs, 1, 4 * KiB, null) == cudaSuccess);
        pool.deallocate(null, theirs, 4 * KiB);
        CHECK(simulated_cuda::calls("cudaEventRecord") == before); // kept for this thread, as another stream's would be
    }).join();
    for (bool const settled : {false, true}) { // what it left goes to nobody while its work may run
        std::set<void*> taken; // all that is at hand
        for (std::size_t const before = pool.reserved_bytes(); pool.reserved_bytes() == before;)
            taken.insert(pool.allocate(null, 4 * KiB));
        CHECK(taken.count(theirs) == (settled ? 1 : 0));
        for (void* each : taken)
            pool.deallocate(null, each, 4 * KiB);
        gate.open();
        pool.settle();
    }
}

#endif

TEST_CASE_TEMPLATE("per-thread default streams: null may be captured, and is refused then", Pool, device_pool, compact_device_pool) {
    support::every_schedule([] {
        Pool pool;
        pool.deallocate(null, pool.allocate(null, 1 * MiB), 1 * MiB);
        cudaGraph_t graph = nullptr;
        REQUIRE(cudaStreamBeginCapture(null, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(null, 256)), usage_error);
        REQUIRE(cudaStreamEndCapture(null, &graph) == cudaSuccess); // which was not broken
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        pool.deallocate(null, pool.allocate(null, 256), 256);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("per-thread default streams: containers take null") {
    support::every_schedule([] {
        device_pool pool;
        device_vector<int> xs(pool, null);
        int const some[] = {1, 2, 3};
        xs.append(some, 3);
        int back[3] = {};
        REQUIRE(cudaMemcpyAsync(back, xs.data(), sizeof back, cudaMemcpyDeviceToHost, null) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(null) == cudaSuccess);
        CHECK(back[2] == 3);
    });
}
