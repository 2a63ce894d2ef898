// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// Does a pair get slower when free memory lies in many pieces? Nanoseconds a pair, on a pool from which
// 32,768 blocks of 1 KiB to 256 KiB, log-uniform, were allocated and every second one freed again. 4 KiB fits
// many a hole; 1 MiB fits none, so a pool that looks at its free pieces one by one looks at all 16,384.

#include "harness.hpp"

namespace weir_bench {

namespace {

struct pair_among_holes {
    std::size_t bytes;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        std::size_t const blocks_ever = count(32'768, 256);
        std::vector<std::size_t> const sizes = log_uniform(blocks_ever, 1 << 10, 256 << 10, 4);
        own_stream const stream;
        Pool pool;
        std::vector<void*> blocks(blocks_ever);
        for (std::size_t i = 0; i < blocks_ever; ++i)
            blocks[i] = pool.allocate(stream, sizes[i]);
        for (std::size_t i = 0; i < blocks_ever; i += 2)
            pool.deallocate(stream, blocks[i], sizes[i]);
        stream.drain();
        std::size_t const pairs_a_batch = count(1024, 4);
        auto const batch = [&] {
            for (std::size_t i = 0; i < pairs_a_batch; ++i) {
                void* p = pool.allocate(stream, bytes);
                benchmark::DoNotOptimize(p);
                pool.deallocate(stream, p, bytes);
            }
        };
        batch();
        stream.drain();
        double const each = nanoseconds_per(pairs_a_batch, stream, batch);
        for (std::size_t i = 1; i < blocks_ever; i += 2)
            pool.deallocate(stream, blocks[i], sizes[i]);
        stream.drain();
        return each;
    }
};

} // namespace

void fragmented() {
    ask("fragmented/4_KiB", bulk, pair_among_holes{4 << 10});
    ask("fragmented/1_MiB", bulk, pair_among_holes{1 << 20});
}

} // namespace weir_bench
