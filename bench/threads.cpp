// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device), Google Benchmark and
// threads.
//
// What do threads cost one another? Wall time over all pairs: with n threads, a pool that scales takes an
// n-th of what one thread takes. Pairs of 4 KiB; every thread on a stream of the program's, or on the thread's own default
// stream (cudaStreamPerThread), or 16 threads on 4 streams.

#include "crew.hpp"

namespace weir_bench {

namespace {

struct pairs_of_threads {
    std::size_t threads;
    std::size_t streams; // 0: each thread's default stream
    static constexpr std::size_t bytes = 4 << 10;
    static constexpr std::size_t pairs_a_piece = 32;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        std::vector<own_stream> const own(streams);
        Pool pool;
        return wall_nanoseconds_per(threads, [&](std::size_t thread) {
            cudaStream_t const stream = streams == 0 ? cudaStreamPerThread : cudaStream_t{own[thread % streams]};
            for (std::size_t i = 0; i < pairs_a_piece; ++i) {
                void* p = pool.allocate(stream, bytes);
                benchmark::DoNotOptimize(p);
                pool.deallocate(stream, p, bytes);
            }
            return pairs_a_piece;
        });
    }
};

} // namespace

void threads() {
    ask("threads/1_thread", many_threads, pairs_of_threads{1, 1});
    ask("threads/4_threads_own_streams", many_threads, pairs_of_threads{4, 4});
    ask("threads/16_threads_own_streams", many_threads, pairs_of_threads{16, 16});
    ask("threads/16_threads_per_thread_streams", many_threads | per_thread_streams, pairs_of_threads{16, 0});
    ask("threads/16_threads_4_streams", many_threads, pairs_of_threads{16, 4});
}

} // namespace weir_bench
