// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// What does a call cost when sizes and lifetimes are random? Nanoseconds a call (an allocate or a free), with
// 10,000 live blocks of 1 KiB to 1 MiB, log-uniform: about 1.5 GiB. Each step frees a random block and puts
// one of a random size in its place.

#include "harness.hpp"

namespace weir_bench {

namespace {

struct random_replacement {
    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        std::size_t const live = count(10'000, 100);
        std::size_t const steps = count(1 << 16, 256);
        std::vector<std::size_t> const first = log_uniform(live, 1 << 10, 1 << 20, 1);
        std::vector<std::size_t> const sizes = log_uniform(steps, 1 << 10, 1 << 20, 2);
        std::vector<std::uint32_t> victims(steps);
        std::mt19937_64 random(3);
        for (std::uint32_t& victim : victims)
            victim = static_cast<std::uint32_t>(random() % live);

        own_stream const stream;
        Pool pool;
        std::vector<block> blocks(live);
        for (std::size_t i = 0; i < live; ++i)
            blocks[i] = block{pool.allocate(stream, first[i]), first[i]};
        std::size_t next = 0;
        std::size_t const steps_a_batch = count(1024, 64);
        auto const batch = [&] {
            for (std::size_t i = 0; i < steps_a_batch; ++i) {
                block& victim = blocks[victims[next]];
                pool.deallocate(stream, victim.p, victim.bytes);
                victim.bytes = sizes[next];
                victim.p = pool.allocate(stream, victim.bytes);
                next = next + 1 == steps ? 0 : next + 1;
            }
        };
        for (std::size_t i = 0; i < 2 * live; i += steps_a_batch) {
            batch();
            stream.drain();
        }
        double const each = nanoseconds_per(2 * steps_a_batch, stream, batch);
        for (block const& left : blocks)
            pool.deallocate(stream, left.p, left.bytes);
        stream.drain();
        return each;
    }
};

} // namespace

void random_sizes() {
    ask("random_sizes/10000_live", bulk, random_replacement{});
}

} // namespace weir_bench
