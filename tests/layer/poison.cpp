// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <atomic>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/standard_error.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <weir/layer/poison.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/runtime/wait.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/include/weir/simulated_device/watched.hpp>
#endif

using support::scoped_stream;
using weir::check_cuda;
using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::layer::poison_options;
using poisoned = weir::layer::poison<weir::device_pool>;

namespace {

using bytes_seen = std::vector<unsigned char>;

bytes_seen seen(cudaStream_t stream, void const* p, std::size_t bytes) {
    bytes_seen all(bytes);
    check_cuda(cudaMemcpyAsync(all.data(), p, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return all;
}

void write(cudaStream_t stream, void* p, std::size_t bytes = 1) {
    check_cuda(cudaMemsetAsync(p, 7, bytes, stream), "cudaMemsetAsync");
}

} // namespace

TEST_CASE("poison: what is handed out is filled, and what comes back, with the patterns of the options") {
    support::every_schedule([] {
        scoped_stream a;
        for (bool const own : {false, true}) {
            CAPTURE(own);
            poisoned pool(own ? poison_options{}.handed_out(1).freed(2) : poison_options{});
            void* const p = pool.allocate(a, 1000);
            CHECK(seen(a, p, 1000) == bytes_seen(1000, own ? 1 : 0xcd));
            write(a, p, 1000); // before the free, so no mistake
            pool.deallocate(a, p, 1000);
            CHECK(pool.held_bytes() == 1000);
            CHECK(seen(a, p, 1000) == bytes_seen(1000, own ? 2 : 0xdd));
            CHECK(pool.check() == 0);
            void* const q = pool.allocate_sync(1000);
            CHECK(q != p);
            CHECK(seen(a, q, 1000) == bytes_seen(1000, own ? 1 : 0xcd));
            pool.deallocate_sync(q, 1000);
            CHECK(pool.check() == 0);
            pool.deallocate(a, nullptr, 5);
            CHECK(pool.try_allocate(a, 0) == nullptr);
        }
    });
}

TEST_CASE("poison: a write after the free is found and said, wherever it is") {
    support::every_schedule([] {
        scoped_stream a;
        for (std::size_t const at : {std::size_t{0}, 64 * KiB, 100 * KiB - 1}) {
            CAPTURE(at);
            poisoned pool;
            char* const p = static_cast<char*>(pool.allocate(a, 100 * KiB));
            char* const q = static_cast<char*>(pool.allocate(a, 10));
            pool.deallocate(a, q, 10);
            pool.deallocate(a, p, 100 * KiB);
            write(a, p + at);
            check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
            std::size_t found = 0;
            std::string const said = support::standard_error_of([&] { found = pool.check(); });
            CHECK(found == 1);
            CHECK(said.find(" of 102400 bytes (100 KiB) was written to after its free: byte " + std::to_string(at) + " is") !=
                  std::string::npos);
            CHECK(pool.release_held() == 100 * KiB + 10);
            CHECK(pool.check() == 0);
        }
    });
}

TEST_CASE("poison: the end of the pool checks what is still held") {
    support::every_schedule([] {
        scoped_stream a;
        std::string const said = support::standard_error_of([&] {
            poisoned pool;
            void* const p = pool.allocate(a, 100);
            pool.deallocate(a, p, 100);
            write(a, p);
            check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
        });
        CHECK(said.find("byte 0 is the first that changed") != std::string::npos);
    });
}

TEST_CASE("poison: the oldest go to the pool if there are too many, and all if it has no room, or is to settle or trim") {
    support::every_schedule([] {
        scoped_stream a;
        poisoned pool(poison_options{}.held(3000), weir::pool_options{}.limit(4 * MiB));
        for (int each = 0; each != 100; ++each)
            pool.deallocate(a, pool.allocate(a, 1000), 1000);
        CHECK(pool.held_bytes() == 3000);
        CHECK(pool.state().live_blocks == 3);
        pool.deallocate(a, pool.allocate(a, 4000), 4000); // more than may be held
        CHECK(pool.held_bytes() == 3000);
        pool.settle();
        CHECK(pool.state().live_blocks == 0);
        pool.deallocate(a, pool.allocate(a, 1000), 1000);
        CHECK(pool.trim() != 0);
        CHECK(pool.state().live_blocks == 0);
        pool.deallocate(a, pool.allocate(a, 1000), 1000);
        void* const large = pool.allocate(a, 4 * MiB);
        CHECK(pool.held_bytes() == 0);
        CHECK(pool.try_allocate(a, 4 * MiB) == nullptr);
        pool.deallocate(a, large, 4 * MiB);
    });
}

TEST_CASE("poison: a block that other streams use is not filled under them") {
    support::every_schedule([] {
        scoped_stream a, b;
        poisoned pool;
        for (bool const last : {false, true}) {
            void* const p = pool.allocate(a, 1000);
            check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
            std::vector<unsigned char> read(1000);
            check_cuda(cudaMemcpyAsync(read.data(), p, 1000, cudaMemcpyDefault, b), "cudaMemcpyAsync");
            if (last)
                pool.last_used_on(p, b);
            else
                pool.used_on(p, b);
            pool.used_on(nullptr, b); // no block
            pool.deallocate(a, p, 1000);
            CHECK(pool.held_bytes() == 0);
            check_cuda(cudaStreamSynchronize(b), "cudaStreamSynchronize");
            CHECK(read == bytes_seen(1000, 0xcd));
            pool.settle();
        }
    });
}

TEST_CASE("poison: what a captured stream frees is the pool's at once, and a graph has no fill of it") {
    support::every_schedule([] {
        scoped_stream a;
        poisoned pool;
        void* const p = pool.allocate(a, 1000);
        support::capture capture(a);
        pool.deallocate(a, p, 1000);
        std::size_t nodes = 1;
        CHECK(capture.unbroken(&nodes));
        CHECK(nodes == 0);
        CHECK(pool.held_bytes() == 0);
    });
}

TEST_CASE("poison: a scope's end, and clear, end what is held, too") {
    support::every_schedule([] {
        scoped_stream a;
        weir::layer::poison<weir::frame_pool> pool;
        {
            weir::scope<weir::layer::poison<weir::frame_pool>> const frame(pool);
            pool.deallocate(a, pool.allocate(a, 100), 100);
        }
        CHECK(pool.held_bytes() == 0);
        pool.deallocate(a, pool.allocate(a, 100), 100);
        pool.clear();
        CHECK(pool.held_bytes() == 0);
        check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("poison: under random campaigns no fill meets a block that the pool has, and no write of the program is damage") {
    using watched = simulated_cuda::watched<
        weir::pool<weir::upstream::device, weir::recipes::general_placement, weir::reuse::stream_ordered<>>>;
    support::every_schedule([] {
        weir::layer::poison<watched> pool(poison_options{}.held(50'000));
        scoped_stream streams[3];
        struct block {
            void* p;
            std::size_t bytes, stream;
        };
        std::vector<block> live;
        std::mt19937 random(41);
        for (int step = 0; step != 300; ++step)
            if (live.empty() || random() % 2 == 0) {
                std::size_t const bytes = 1 + random() % 20'000, stream = random() % 3;
                live.push_back({pool.allocate(streams[stream], bytes), bytes, stream});
                write(streams[stream], live.back().p, bytes);
            } else {
                std::size_t const at = random() % live.size();
                if (step % 7 == 0)
                    pool.used_on(live[at].p, streams[random() % 3]);
                pool.deallocate(streams[live[at].stream], live[at].p, live[at].bytes);
                live[at] = live.back();
                live.pop_back();
                if (step % 50 == 0)
                    CHECK(pool.check() == 0);
            }
        for (block const& each : live)
            pool.deallocate(streams[each.stream], each.p, each.bytes);
        CHECK(pool.check() == 0);
        pool.settle();
    });
}

TEST_CASE("poison: while one thread waits for a stream that is held back, others allocate, free and check") {
    struct scene {
        scoped_stream held_back, other;
        poisoned pool{poison_options{}.held(3000)};
        std::thread crew[2];
        std::atomic<bool> is_done{false};
        std::size_t live_blocks = 1; // when all was released
        bool went_on = false;
    };
    // The simulated device runs it in the thread that waits for its stream.
    auto const runs_in_the_wait = [](void* argument) {
        scene& now = *static_cast<scene*>(argument);
        now.crew[0] = std::thread([&now] {
            void* const p = now.pool.allocate(now.other, 100);
            now.pool.used_on(p, now.other);
            now.pool.deallocate(now.other, p, 100);
            now.pool.deallocate(now.other, now.pool.allocate(now.other, 100), 100);
            CHECK(now.pool.check() == 0);
            now.is_done = true;
        });
        for (int turn = 0; turn != 1'000'000 && !now.is_done; ++turn) // more, and it waits for this thread
            std::this_thread::yield();
        now.went_on = now.is_done;
        now.crew[1] = std::thread([&now] {
            now.pool.release_held(); // also what this thread took out
            now.live_blocks = now.pool.state().live_blocks;
        });
    };
    using waiting = void (*)(scene&);
    waiting const all[] = {
        [](scene& now) { CHECK(now.pool.check() == 0); },
        [](scene& now) { CHECK(now.pool.release_held() >= 2000); },
        [](scene& now) { now.pool.deallocate(now.other, now.pool.allocate(now.other, 2000), 2000); }, // more than may be held
    };
    for (waiting const& each : all) {
        CAPTURE(&each - all);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        scene now;
        void* const p = now.pool.allocate(now.held_back, 2000);
        check_cuda(cudaLaunchHostFunc(now.held_back, runs_in_the_wait, &now), "cudaLaunchHostFunc");
        now.pool.deallocate(now.held_back, p, 2000);
        each(now);
        for (std::thread& one : now.crew)
            one.join();
        CHECK(now.went_on);
        CHECK(now.live_blocks == 0);
    }
}

TEST_CASE("poison: whatever call fails, no block is lost, or handed out under its fill") {
    struct scene {
        scoped_stream a;
        std::unique_ptr<poisoned> pool = std::make_unique<poisoned>(poison_options{}.held(2000));
        void* first = pool->allocate(a, 1000);
        void* got = nullptr;
    };
    std::uint64_t const calls = support::each_fault(
        [] { return std::make_unique<scene>(); },
        [](scene& now) {
            now.got = now.pool->allocate(now.a, 1500);
            now.pool->deallocate(now.a, now.first, 1000);
            now.first = nullptr;
            now.pool->deallocate(now.a, std::exchange(now.got, nullptr), 1500);
            static_cast<void>(now.pool->check());
        },
        [](scene& now, bool) {
            if (now.first)
                now.pool->deallocate(now.a, now.first, 1000);
            if (now.got)
                now.pool->deallocate(now.a, now.got, 1500);
            now.pool->release_held();
            CHECK(now.pool->state().live_blocks == 0);
            now.pool.reset();
        });
    CHECK(calls > 8);
}

TEST_CASE("poison: a call that fails once at the end leaves no block, and none under its fill") {
    for (std::uint64_t k = 1; k != 10; ++k) {
        CAPTURE(k);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        scoped_stream a;
        weir::device_pool pool;
        {
            weir::layer::poison<weir::device_pool&> held(pool);
            held.deallocate(a, held.allocate(a, 1000), 1000);
            simulated_cuda::fail_call(k, cudaErrorUnknown, simulated_cuda::lasting::once);
        }
        simulated_cuda::clear_faults();
        CHECK(pool.state().live_blocks == 0);
    }
}
#endif
