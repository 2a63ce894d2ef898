// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// What do many pools cost one another? A pair of 4 KiB on each of 64 pools in turn, on one stream: nanoseconds a
// pair, in which each pool's bookkeeping has to come into the cache again. The counters device_MiB and
// host_KiB_per_pool say what the 64 took, with one block of 4 KiB freed in each.

#include "harness.hpp"

namespace weir_bench {

namespace {

struct pairs_of_pools {
    static constexpr std::size_t bytes = 4 << 10;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        std::size_t const pools_in_all = count(64, 8);
        own_stream const stream;
        std::vector<std::unique_ptr<Pool>> pools;
        pools.reserve(pools_in_all);
        std::size_t const taken_before = device_bytes_taken();
        std::size_t const heap_before = host_heap_bytes();
        for (std::size_t i = 0; i < pools_in_all; ++i)
            pools.push_back(std::make_unique<Pool>());
        std::size_t const pairs_a_batch = count(16, 2) * pools_in_all;
        auto const batch = [&] {
            for (std::size_t i = 0; i < pairs_a_batch; ++i) {
                Pool& pool = *pools[i % pools_in_all];
                void* p = pool.allocate(stream, bytes);
                benchmark::DoNotOptimize(p);
                pool.deallocate(stream, p, bytes);
            }
        };
        batch();
        stream.drain();
        std::size_t const heap_after = host_heap_bytes();
        count_device_memory<Pool>(state, taken_before);
        state.counters["host_KiB_per_pool"] =
            heap_after > heap_before
                ? static_cast<double>(heap_after - heap_before) / 1024 / static_cast<double>(pools_in_all)
                : 0;
        return nanoseconds_per(pairs_a_batch, stream, batch);
    }
};

} // namespace

void side_by_side_pools() {
    ask("side_by_side/64_pools", bulk | side_by_side, pairs_of_pools{});
}

} // namespace weir_bench
