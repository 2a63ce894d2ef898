// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// Does a pool remember streams that are gone? 10,000 streams come and go, 32 at a time; each takes four blocks of
// 4 KiB to 1 MiB, uses them, and frees them while the work is in flight. Nanoseconds a call, for the last thousand
// streams. Handles come again, so a pool that tells streams by them hands out bytes in flight, and is not asked.
//
// The counter percent_slower compares the last thousand streams with the second; host_B_per_stream is what malloc
// handed out since then and still has, over the streams, and device_MiB what the pool took from the device in all.

#include "harness.hpp"

#include <array>
#include <optional>

namespace weir_bench {

namespace {

struct streams_that_end {
    static constexpr std::array<std::size_t, 4> sizes{4 << 10, 64 << 10, 256 << 10, 1 << 20};
    static constexpr std::size_t at_a_time = 32;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        std::size_t const thousand = count(1000, 40);
        std::size_t const streams_in_all = 10 * thousand;
        std::array<std::optional<own_stream>, at_a_time> ring;
        std::array<void*, sizes.size()> blocks{};
        Pool pool;
        patience const patience;
        std::size_t const taken_before = device_bytes_taken();
        std::size_t heap_early = 0;
        std::chrono::nanoseconds early{0};
        std::chrono::nanoseconds late{0};
        for (std::size_t turn = 0; turn < streams_in_all; ++turn) {
            if (turn == thousand)
                heap_early = host_heap_bytes();
            own_stream const& stream = ring[turn % at_a_time].emplace(); // the one that was there ends
            clock::time_point const start = clock::now();
            for (std::size_t i = 0; i < sizes.size(); ++i)
                blocks[i] = pool.allocate(stream, sizes[i]);
            clock::time_point const given = clock::now();
            for (std::size_t i = 0; i < sizes.size(); ++i)
                enqueue_work(blocks[i], sizes[i], stream);
            clock::time_point const used = clock::now();
            for (std::size_t i = 0; i < sizes.size(); ++i)
                pool.deallocate(stream, blocks[i], sizes[i]);
            std::chrono::nanoseconds const taken = given - start + (clock::now() - used);
            if (turn / thousand == 1)
                early += taken;
            else if (turn / thousand == 9)
                late += taken;
            if (turn % 128 == 0)
                patience.check();
        }
        std::size_t const heap_late = host_heap_bytes();
        state.counters["percent_slower"] =
            100 * (static_cast<double>(late.count()) / static_cast<double>(early.count()) - 1);
        state.counters["host_B_per_stream"] =
            heap_late > heap_early
                ? static_cast<double>(heap_late - heap_early) / static_cast<double>(9 * thousand)
                : 0;
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        count_device_memory<Pool>(state, taken_before);
        return static_cast<double>(late.count()) / static_cast<double>(2 * sizes.size() * thousand);
    }
};

} // namespace

void streams() {
    ask("streams/10000_come_and_go", bulk | in_flight | come_and_go, streams_that_end{});
}

} // namespace weir_bench
