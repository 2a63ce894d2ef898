// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// What does a block cost that is freed at once, on one stream? Nanoseconds a pair of one size.
//
// The shortest way through a pool: what was freed last, on the same stream, is what is asked for next. Sizes are asked on a
// stream of the program's own; and 4 KiB once more on the streams that programs use which make none: the null stream (CUDA's
// legacy default), and the thread's own default stream. Those are shown as a multiple of a stream of one's own, too.

#include "harness.hpp"

#include <optional>

namespace weir_bench {

namespace {

struct pair_of {
    std::size_t bytes;
    std::optional<cudaStream_t> default_stream = {}; // none: a stream of its own

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        own_stream const own;
        cudaStream_t const stream = default_stream.value_or(own);
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
        drain(stream);
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
    ask("pairs/4_KiB_null_stream", 0, pair_of{4 << 10, cudaStream_t{nullptr}});
    ask("pairs/4_KiB_per_thread_stream", 0, pair_of{4 << 10, cudaStreamPerThread});
}

} // namespace weir_bench
