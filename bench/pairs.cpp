// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// What does a block cost that is freed at once, on one stream? Nanoseconds a pair of one size.
//
// The shortest way through a pool: what was freed last, on the same stream, is what is asked for next.

#include "harness.hpp"

namespace weir_bench {

namespace {

struct pair_of {
    std::size_t bytes;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        own_stream const stream;
        Pool pool;
        std::size_t const pairs_a_batch = count(Pool::able & bulk ? 1024 : 64, 4);
        auto const batch = [&] {
            for (std::size_t i = 0; i < pairs_a_batch; ++i) {
                void* p = pool.allocate(stream, bytes);
                benchmark::DoNotOptimize(p);
                pool.deallocate(stream, p, bytes);
            }
        };
        batch();
        stream.drain();
        return nanoseconds_per(pairs_a_batch, stream, batch);
    }
};

} // namespace

void pairs() {
    ask("pairs/256_B", 0, pair_of{256});
    ask("pairs/4_KiB", 0, pair_of{4 << 10});
    ask("pairs/64_KiB", 0, pair_of{64 << 10});
    ask("pairs/1_MiB", 0, pair_of{1 << 20});
    ask("pairs/32_MiB", 0, pair_of{32 << 20});
}

} // namespace weir_bench
