// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// What does a pool cost that is cold, and what does its end cost? Nanoseconds a block of 2 MiB.
//
// first_block: a pool is made and hands out its first block, of 256 bytes; nanoseconds for both. first_2_GiB: a
// pool is made and 1,024 blocks are allocated from it, so that it grows as its policy says.
// destroy_2_GiB: they are freed, and the pool is destroyed with all that it held. The counter device_MiB says
// what the pool held for the 2,048 MiB.

#include "harness.hpp"

#include <optional>

namespace weir_bench {

namespace {

struct first_and_last {
    bool is_the_end_timed;
    static constexpr std::size_t bytes = 2 << 20;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        std::size_t const blocks_in_all = count(1024, 32);
        own_stream const stream;
        std::vector<void*> blocks(blocks_in_all);
        std::size_t const taken_before = device_bytes_taken();
        clock::time_point const cold = clock::now();
        std::optional<Pool> pool;
        pool.emplace();
        for (void*& p : blocks)
            p = pool->allocate(stream, bytes);
        clock::time_point const grown = clock::now();
        stream.drain();
        count_device_memory<Pool>(state, taken_before);
        clock::time_point const ending = clock::now();
        for (void* p : blocks)
            pool->deallocate(stream, p, bytes);
        stream.drain();
        pool.reset();
        clock::time_point const over = clock::now();
        return std::chrono::duration<double, std::nano>(is_the_end_timed ? over - ending : grown - cold)
                   .count() /
               static_cast<double>(blocks_in_all);
    }
};

struct first_of_all {
    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        own_stream const stream;
        clock::time_point const cold = clock::now();
        std::optional<Pool> pool;
        pool.emplace();
        void* const p = pool->allocate(stream, 256);
        clock::time_point const given = clock::now();
        pool->deallocate(stream, p, 256);
        stream.drain();
        return std::chrono::duration<double, std::nano>(given - cold).count();
    }
};

} // namespace

void growth() {
    ask("growth/first_block", on_device, first_of_all{});
    ask("growth/first_2_GiB", on_device, first_and_last{false});
    ask("growth/destroy_2_GiB", on_device, first_and_last{true});
}

} // namespace weir_bench
