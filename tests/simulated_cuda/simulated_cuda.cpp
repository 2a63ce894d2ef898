// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The simulator's own promises: schedules, seeds that replay, faults, lost devices, the explorer, threads
// that take turns, memory that costs nothing. Its likeness to CUDA is the conformance suite's; its findings
// are in reports.cpp.

#include "simulated_cuda/simulated_cuda.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#if defined(__SANITIZE_THREAD__)
#define THREADS_RUN_FREELY 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREADS_RUN_FREELY 1
#endif
#endif

namespace sim = simulated_cuda;

namespace {

cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

cudaEvent_t make_event() {
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    return event;
}

/// A run with some of everything in it.
std::string story(sim::config const& settings) {
    sim::world world(sim::config(settings).with_log());
    cudaStream_t const streams[] = {make_stream(), make_stream(), make_stream()};
    cudaEvent_t const event = make_event();
    void* p = nullptr;
    static_cast<void>(cudaMalloc(&p, 1 << 16));
    for (int round = 0; round < 60; ++round) {
        cudaStream_t const stream = streams[sim::choose(3)];
        auto* const at = static_cast<char*>(p) + 4096 * (stream == streams[0]   ? 0
                                                         : stream == streams[1] ? 1
                                                                                : 2);
        static_cast<void>(sim::launch(stream, {}, {{at, 4096}}));
        static_cast<void>(cudaEventRecord(event, stream));
        sim::log(cudaEventQuery(event) == cudaSuccess ? "done" : "not yet");
        static_cast<void>(cudaStreamWaitEvent(streams[sim::choose(3)], event, 0));
    }
    static_cast<void>(cudaFree(p));
    static_cast<void>(cudaEventDestroy(event));
    for (cudaStream_t const stream : streams)
        static_cast<void>(cudaStreamDestroy(stream));
    CHECK(world.finish().empty());
    return sim::log();
}

} // namespace

TEST_CASE("simulated_cuda: in eager mode work is over when its call returns") {
    sim::world world;
    cudaStream_t const stream = make_stream();
    int ran = 0;
    CHECK(sim::launch(stream, {}, {}, [&] { ++ran; }) == cudaSuccess);
    CHECK(ran == 1);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("simulated_cuda: in late mode only what a wait needs runs") {
    sim::world world(sim::config{}.late());
    cudaStream_t const wanted = make_stream();
    cudaStream_t const other = make_stream();
    cudaStream_t const behind = make_stream();
    cudaEvent_t const event = make_event();
    int first = 0;
    int second = 0;
    int third = 0;
    CHECK(sim::launch(other, {}, {}, [&] { ++first; }) == cudaSuccess);
    CHECK(sim::launch(behind, {}, {}, [&] { ++second; }) == cudaSuccess);
    CHECK(cudaEventRecord(event, behind) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(wanted, event, 0) == cudaSuccess);
    CHECK(sim::launch(wanted, {}, {}, [&] { ++third; }) == cudaSuccess);
    CHECK(cudaStreamQuery(wanted) == cudaErrorNotReady);
    CHECK(cudaStreamSynchronize(wanted) == cudaSuccess);
    CHECK(first == 0);
    CHECK(second == 1);
    CHECK(third == 1);
    CHECK(sim::pending() == 1);
    sim::drain();
    CHECK(first == 1);
    for (cudaStream_t const stream : {wanted, other, behind})
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("simulated_cuda: in late mode a loop of queries ends") {
    sim::world world(sim::config{}.late());
    cudaStream_t const stream = make_stream();
    for (int round = 0; round < 5; ++round)
        CHECK(sim::launch(stream, {}, {}, {}) == cudaSuccess);
    int asked = 0;
    while (cudaStreamQuery(stream) == cudaErrorNotReady)
        REQUIRE(++asked < 1000);
    CHECK(asked > 60);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("simulated_cuda: in random mode queries see both answers") {
    std::set<cudaError_t> seen;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        sim::world world(sim::config{}.random(seed));
        cudaStream_t const stream = make_stream();
        CHECK(sim::launch(stream, {}, {}, {}) == cudaSuccess);
        seen.insert(cudaStreamQuery(stream));
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    }
    CHECK(seen.size() == 2);
}

TEST_CASE("simulated_cuda: a seed replays byte for byte, and seeds differ") {
    std::set<std::string> stories;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        std::string const once = story(sim::config{}.random(seed));
        CHECK(once == story(sim::config{}.random(seed)));
        stories.insert(once);
    }
    CHECK(stories.size() == 20);
    CHECK(story(sim::config{}.eager()) == story(sim::config{}.eager()));
    CHECK(story(sim::config{}.late()) == story(sim::config{}.late()));
}

TEST_CASE("simulated_cuda: reset ends everything") {
    sim::reset();
    cudaStream_t const stale = make_stream();
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 1000) == cudaSuccess);
    CHECK(cudaSetDevice(7) == cudaErrorInvalidDevice);
    CHECK(sim::leaks().size() == 2);
    sim::reset();
    CHECK(sim::leaks().empty());
    CHECK(sim::reports().empty());
    CHECK(sim::calls() == 0);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaStreamQuery(stale) == cudaErrorInvalidResourceHandle);
    CHECK(cudaFree(p) == cudaErrorInvalidValue);
    sim::clear_reports();
}

TEST_CASE("simulated_cuda: a world hands over what it found") {
    std::vector<sim::report> found;
    {
        sim::world world({}, [&](std::vector<sim::report> const& all) { found = all; });
        static_cast<void>(make_stream());
        void* p = nullptr;
        CHECK(cudaMalloc(&p, 1000) == cudaSuccess);
        CHECK(sim::complaints().find("1000 bytes of cudaMalloc") != std::string::npos);
    }
    REQUIRE(found.size() == 2);
    CHECK(found[0].kind == sim::finding::leak);
}

// ---- the explorer -----------------------------------------------------------------------------------------

TEST_CASE("simulated_cuda: the explorer visits every order of two independent pieces of work") {
    std::set<std::string> orders;
    std::uint64_t const ran = sim::explore({}, 10000, [&] {
        cudaStream_t const one = make_stream();
        cudaStream_t const other = make_stream();
        std::string order;
        CHECK(sim::launch(one, {}, {}, [&] { order += 'a'; }) == cudaSuccess);
        CHECK(sim::launch(other, {}, {}, [&] { order += 'b'; }) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        orders.insert(order);
        CHECK(cudaStreamDestroy(one) == cudaSuccess);
        CHECK(cudaStreamDestroy(other) == cudaSuccess);
    });
    CHECK(ran < 10000);
    CHECK(ran >= 4);
    CHECK(orders == std::set<std::string>{"ab", "ba"});
}

TEST_CASE("simulated_cuda: the explorer finds the one query that says yes too early") {
    // A read that is right only if a query said no: some schedule says yes.
    std::uint64_t found = 0;
    std::uint64_t const ran = sim::explore({}, 1000, [&] {
        cudaStream_t const stream = make_stream();
        CHECK(sim::launch(stream, {}, {}, {}) == cudaSuccess);
        CHECK(sim::launch(stream, {}, {}, {}) == cudaSuccess);
        found += cudaStreamQuery(stream) == cudaSuccess;
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    });
    CHECK(found > 0);
    CHECK(found < ran);
}

TEST_CASE("simulated_cuda: the explorer stops at a report") {
    int runs = 0;
    std::uint64_t const ran = sim::explore({}, 1000, [&] {
        ++runs;
        if (sim::choose(3) == 2)
            CHECK(cudaStreamQuery(reinterpret_cast<cudaStream_t>(std::uintptr_t(0x1230))) ==
                  cudaErrorInvalidResourceHandle);
    });
    CHECK(ran == 3);
    CHECK(runs == 3);
    CHECK(sim::reports(sim::finding::destroyed_handle).size() == 1);
    sim::clear_reports();
    sim::reset();
}

// ---- threads ----------------------------------------------------------------------------------------------

namespace {

std::string told_by_threads(std::uint64_t seed) {
    sim::world world(sim::config{}.random(seed).with_log());
    std::mutex lock;
    std::string order;
    std::vector<std::function<void()>> functions;
    for (char name = 'a'; name < 'd'; ++name)
        functions.push_back([&order, &lock, name] {
            cudaStream_t const stream = make_stream();
            for (int round = 0; round < 10; ++round) {
                CHECK(sim::launch(stream, {}, {}, {}) == cudaSuccess);
                std::lock_guard<std::mutex> const hold(lock);
                order += name;
                CHECK(cudaStreamQuery(stream) != cudaErrorUnknown); // a switch with the lock held
            }
            CHECK(cudaStreamDestroy(stream) == cudaSuccess);
        });
    sim::run_threads(functions);
    return order + sim::log();
}

} // namespace

TEST_CASE("simulated_cuda: threads take turns as the seed decides") {
#ifndef THREADS_RUN_FREELY
    std::set<std::string> orders;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        std::string const once = told_by_threads(seed);
        CHECK(once == told_by_threads(seed));
        orders.insert(once.substr(0, 30));
    }
    CHECK(orders.size() > 5);
#else
    static_cast<void>(told_by_threads(1));
#endif
}

TEST_CASE("simulated_cuda: a thread that spins and yields lets the others on") {
    sim::world world(sim::config{}.random(4));
    std::atomic<bool> ready{false};
    sim::run_threads({[&] {
                          while (!ready.load())
                              std::this_thread::yield();
                      },
                      [&] {
                          CHECK(cudaFree(nullptr) == cudaSuccess);
                          ready = true;
                      }});
    CHECK(ready.load());
}

TEST_CASE("simulated_cuda: a gate that another thread opens") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        sim::world world(sim::config{}.random(seed));
        cudaStream_t const stream = make_stream();
        sim::gate gate;
        CHECK(gate.close(stream) == cudaSuccess);
        sim::run_threads({[&] { CHECK(cudaStreamSynchronize(stream) == cudaSuccess); },
                          [&] {
                              CHECK(cudaFree(nullptr) != cudaErrorUnknown);
                              gate.open();
                          }});
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
        world.forgive(); // the free may have waited for the gate that its own thread was to open
    }
}

TEST_CASE("simulated_cuda: threads that run freely") {
    sim::world world(sim::config{}.random(9));
    std::vector<std::thread> threads;
    std::atomic<int> ran{0};
    for (int name = 0; name < 3; ++name)
        threads.emplace_back([&] {
            cudaStream_t stream = nullptr;
            cudaEvent_t event = nullptr;
            bool fine = cudaStreamCreate(&stream) == cudaSuccess && cudaEventCreate(&event) == cudaSuccess;
            for (int round = 0; round < 200 && fine; ++round) {
                fine = sim::launch(stream, {}, {}, [&] { ran.fetch_add(1); }) == cudaSuccess &&
                       cudaEventRecord(event, stream) == cudaSuccess &&
                       cudaEventSynchronize(event) == cudaSuccess;
            }
            fine = fine && cudaEventDestroy(event) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess;
            if (!fine)
                ran.store(-1000000);
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(ran.load() == 600);
}

TEST_CASE("simulated_cuda: an id is a stream's for ever, a handle is the next one's") {
    sim::world world(sim::config{}.late());
    unsigned long long first = 0;
    unsigned long long second = 0;
    cudaStream_t const old = make_stream();
    CHECK(cudaStreamGetId(old, &first) == cudaSuccess);
    int ran = 0;
    CHECK(sim::launch(old, {}, {}, [&] { ++ran; }) == cudaSuccess);
    CHECK(cudaStreamDestroy(old) == cudaSuccess);
    cudaStream_t const fresh = make_stream();
    CHECK(fresh == old);
    CHECK(cudaStreamGetId(fresh, &second) == cudaSuccess);
    CHECK(first != second);
    CHECK(cudaStreamSynchronize(fresh) == cudaSuccess);
    CHECK(ran == 0);
    sim::drain();
    CHECK(ran == 1);
    CHECK(cudaStreamDestroy(fresh) == cudaSuccess);
}

TEST_CASE("simulated_cuda: host memory that is registered is listed until it is unregistered") {
    simulated_cuda::world const world;
    alignas(4096) static char pages[2][4096];
    CHECK(simulated_cuda::registered().empty());
    CHECK(cudaHostRegister(pages[1], sizeof pages[1], cudaHostRegisterDefault) == cudaSuccess);
    auto const listed = simulated_cuda::registered();
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].at == pages[1]);
    CHECK(listed[0].count == sizeof pages[1]);
    CHECK(cudaHostUnregister(pages[1]) == cudaSuccess);
    CHECK(simulated_cuda::registered().empty());
}
