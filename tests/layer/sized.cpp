// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <support/counting_pool.hpp>
#include <support/failing_new.hpp>
#include <string>
#include <support/standard_error.hpp>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <weir/layer/sized.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>

using support::counting_pool;
using weir::on_host;
using noted = weir::layer::sized<counting_pool<>>;

namespace {
constexpr char const* unknown = "weir: layer::sized: an address is freed that is no live block of this layer: it was freed already, "
                                "or comes from elsewhere; it stays as it is\n";
} // namespace

TEST_CASE("sized: an address is enough, with the bytes, the alignment and the stream that the pool needs") {
    noted pool;
    void* const a = pool.allocate(on_host, 100);
    void* const b = pool.allocate(on_host, 50, 1024);
    CHECK(pool.bytes_of(a) == 100);
    CHECK(pool.bytes_of(b) == 50);
    pool.deallocate(cudaStreamLegacy, b); // counting_pool checks what it gets
    CHECK(pool.inner().last_stream == cudaStreamLegacy);
    CHECK(pool.bytes_of(b) == 0);
    pool.deallocate_sync(a);
    CHECK(pool.inner().last_stream == weir::stream_ref(on_host));
    CHECK(pool.state().live_blocks == 0);
    pool.deallocate(on_host, nullptr);
    CHECK(pool.bytes_of(nullptr) == 0);
}

TEST_CASE("sized: who knows the size frees with it, too") {
    noted pool;
    void* const a = pool.allocate(on_host, 100);
    pool.deallocate(on_host, a, 100);
    CHECK(pool.bytes_of(a) == 0);
    void* const b = pool.allocate_sync(100, 64);
    pool.deallocate_sync(b, 100, 64);
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("sized: what is no live block of its own is not freed, and said") {
    noted pool;
    void* const a = pool.allocate(on_host, 100);
    pool.deallocate(on_host, a);
    int elsewhere = 0;
    for (void* const wrong : {a, static_cast<void*>(&elsewhere)})
        CHECK(support::standard_error_of([&] { pool.deallocate(on_host, wrong); }) == unknown);
    CHECK(pool.inner().frees == 1);
}

#ifdef WEIR_SIMULATED_CUDA // a CUDA context does not survive a fork
TEST_CASE("sized: a pool whose options say so aborts then, and says why before") {
    for (weir::violation_action const action : {weir::violation_action::abort, weir::violation_action::report}) {
        bool const aborts = action == weir::violation_action::abort;
        CAPTURE(aborts);
        weir::layer::sized<weir::host_pool> pool(weir::pool_options{}.on_violation(action));
        int status = 0;
        std::string const said = support::standard_error_of([&] {
            pid_t const child = fork();
            if (child == 0) {
                std::signal(SIGABRT, SIG_DFL);
                int elsewhere = 0;
                pool.deallocate_sync(&elsewhere);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child);
        });
        CHECK(WIFSIGNALED(status) == aborts);
        CHECK(said == unknown);
    }
}
#endif

TEST_CASE("sized: a mark that is none any more ends nothing") {
    weir::layer::sized<weir::frame_pool> pool;
    cudaStream_t const stream = cudaStreamLegacy;
    auto const first = pool.mark();
    static_cast<void>(pool.allocate(stream, 100));
    auto const second = pool.mark();
    pool.rewind(first);
    void* const block = pool.allocate(stream, 100);
    pool.rewind(second);
    CHECK(pool.bytes_of(block) == 100);
    pool.deallocate(stream, block);
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("sized: where the host has no memory for the note, the block goes back") {
    long const failures = support::each_failure(
        [] { return std::make_unique<noted>(); },
        [](std::unique_ptr<noted>& pool) {
            void* const p = pool->allocate(on_host, 100);
            pool->deallocate(on_host, p);
        },
        [](std::unique_ptr<noted>& pool) {
            CHECK(pool->state().live_blocks == 0);
        });
    CHECK((failures > 2 || !support::host_memory_can_fail));
}

TEST_CASE("sized: blocks that end with a scope are forgotten") {
    weir::layer::sized<weir::frame_pool> pool;
    void* const kept = pool.allocate(on_host, 100);
    void* ended = nullptr;
    {
        weir::scope const frame(pool);
        ended = pool.allocate(on_host, 100);
        CHECK(pool.bytes_of(ended) == 100);
    }
    CHECK(pool.bytes_of(ended) == 0);
    CHECK(pool.bytes_of(kept) == 100);
    pool.clear();
    CHECK(pool.bytes_of(kept) == 0);
}

TEST_CASE("sized: threads free what others allocated") {
    weir::layer::sized<weir::device_pool> pool;
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed)
        threads.emplace_back([&pool, seed] {
            std::mt19937 random(seed);
            std::vector<void*> mine;
            for (int i = 0; i < 300; ++i)
                if (mine.size() < 20 && random() % 2 == 0) {
                    std::size_t const bytes = 1 + random() % 10000;
                    mine.push_back(pool.allocate_sync(bytes));
                    if (pool.bytes_of(mine.back()) != bytes)
                        std::abort();
                } else if (!mine.empty()) {
                    pool.deallocate_sync(mine.back());
                    mine.pop_back();
                }
            for (void* const p : mine)
                pool.deallocate_sync(p);
        });
    for (std::thread& each : threads)
        each.join();
    CHECK(pool.state().live_blocks == 0);
}
