// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// Does a call get slower when many blocks live? Nanoseconds a call (an allocate or a free), with a thousand
// and with a million live blocks of 512 B to 4 KiB, log-uniform. Blocks are replaced by others of the same
// size in a random order that was fixed beforehand, so that the bench itself reads its list in order.
//
// The counter host_B_per_block says what malloc handed out for them, when they had been allocated or when
// they had been replaced, whichever is more, over the blocks: bookkeeping on the host, also of CUDA where it
// uses malloc. host_B_half_freed is the same when a random half of them has been freed, over those that live:
// what is free has to be written down too. The counter destroy_ms is what the pool's destructor took, when they had all been
// freed again.

#include "harness.hpp"

#include <algorithm>
#include <optional>

namespace weir_bench {

namespace {

struct replacement_among {
    std::size_t live;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        std::vector<std::size_t> const sizes = log_uniform(live, 512, 4 << 10, 6);
        std::vector<block> blocks(live);
        own_stream const stream;
        std::optional<Pool> pool;
        pool.emplace();
        patience const patience;
        std::size_t const heap_before = host_heap_bytes();
        for (std::size_t i = 0; i < live; ++i) {
            blocks[i] = block{pool->allocate(stream, sizes[i]), sizes[i]};
            if (i % 1024 == 0)
                patience.check();
        }
        std::size_t heap_most = std::max(heap_before, host_heap_bytes());
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(7));
        std::size_t next = 0;
        std::size_t const steps_a_batch = count(1000, 64);
        auto const batch = [&] {
            for (std::size_t i = 0; i < steps_a_batch; ++i) {
                block& victim = blocks[next];
                pool->deallocate(stream, victim.p, victim.bytes);
                victim.p = pool->allocate(stream, victim.bytes);
                next = next + 1 == live ? 0 : next + 1;
            }
        };
        batch();
        stream.drain();
        double const each = nanoseconds_per(2 * steps_a_batch, stream, batch);
        heap_most = std::max(heap_most, host_heap_bytes());
        state.counters["host_B_per_block"] =
            static_cast<double>(heap_most - heap_before) / static_cast<double>(live);
        std::size_t heap_at_half = heap_before;
        for (std::size_t i = 0; i < live; ++i) {
            if (i == live / 2)
                heap_at_half = host_heap_bytes();
            pool->deallocate(stream, blocks[i].p, blocks[i].bytes);
            if (i % 1024 == 0)
                patience.check();
        }
        stream.drain();
        state.counters["host_B_half_freed"] =
            static_cast<double>(std::max(heap_at_half, heap_before) - heap_before) /
            static_cast<double>(live / 2);
        clock::time_point const ending = clock::now();
        pool.reset();
        state.counters["destroy_ms"] =
            std::chrono::duration<double, std::milli>(clock::now() - ending).count();
        return each;
    }
};

} // namespace

void live_blocks() {
    ask("live_blocks/1000", bulk, replacement_among{count(1'000, 100)});
    ask("live_blocks/1000000", millions, replacement_among{count(1'000'000, 2'000)});
}

} // namespace weir_bench
