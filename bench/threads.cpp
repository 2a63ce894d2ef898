// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device), Google Benchmark and
// threads.
//
// What do threads cost one another? Wall time over all pairs: with n threads, a pool that scales takes an
// n-th of what one thread takes. Pairs of 4 KiB; every thread on a stream of its own, or 16 threads on 4
// streams. No thread waits for the device, so a pool that records events at each free meets CUDA's queue too,
// as in life.

#include "harness.hpp"

#include <atomic>
#include <thread>

namespace weir_bench {

namespace {

struct pairs_of_threads {
    std::size_t threads;
    std::size_t streams;
    static constexpr std::size_t bytes = 4 << 10;

    struct alignas(128) lane {
        std::size_t pairs = 0;
        clock::time_point end;
        std::string error;
    };

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        int device = 0;
        weir::check(cudaGetDevice(&device), "cudaGetDevice");
        std::vector<own_stream> const own(streams);
        Pool pool;
        std::vector<lane> lanes(threads);
        std::atomic<std::size_t> ready{0};
        std::atomic<bool> go{false};
        std::atomic<bool> stop{false};
        auto const some_pairs = [&](cudaStream_t stream) {
            for (int i = 0; i < 32; ++i) {
                void* p = pool.allocate(stream, bytes);
                benchmark::DoNotOptimize(p);
                pool.deallocate(stream, p, bytes);
            }
        };
        auto const work = [&](std::size_t thread) {
            lane& mine = lanes[thread];
            cudaStream_t const stream = own[thread % streams];
            bool counted = false;
            try {
                weir::check(cudaSetDevice(device), "cudaSetDevice");
                some_pairs(stream);
                counted = true;
                ready.fetch_add(1);
                while (!go.load(std::memory_order_acquire))
                    std::this_thread::yield();
                clock::time_point const last = clock::now() + time_budget();
                do {
                    some_pairs(stream);
                    mine.pairs += 32;
                    if (thread == 0 && clock::now() >= last)
                        stop.store(true, std::memory_order_relaxed);
                } while (!stop.load(std::memory_order_relaxed));
            } catch (std::exception const& error) {
                mine.error = error.what();
                stop.store(true);
                if (!counted)
                    ready.fetch_add(1);
            }
            mine.end = clock::now();
        };
        std::vector<std::thread> running;
        for (std::size_t i = 0; i < threads; ++i)
            running.emplace_back(work, i);
        while (ready.load() != threads)
            std::this_thread::yield();
        weir::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        clock::time_point const start = clock::now();
        go.store(true, std::memory_order_release);
        for (std::thread& thread : running)
            thread.join();

        std::size_t pairs = 0;
        clock::time_point end = start;
        for (lane const& each : lanes) {
            if (!each.error.empty())
                throw std::runtime_error(each.error);
            pairs += each.pairs;
            end = std::max(end, each.end);
        }
        weir::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return std::chrono::duration<double, std::nano>(end - start).count() / static_cast<double>(pairs);
    }
};

} // namespace

void threads() {
    ask("threads/1_thread", many_threads, pairs_of_threads{1, 1});
    ask("threads/4_threads_own_streams", many_threads, pairs_of_threads{4, 4});
    ask("threads/16_threads_own_streams", many_threads, pairs_of_threads{16, 16});
    ask("threads/16_threads_4_streams", many_threads, pairs_of_threads{16, 4});
}

} // namespace weir_bench
