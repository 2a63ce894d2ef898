// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device), Google Benchmark and
// threads.
//
// What does it cost that memory changes streams, and how much memory does it take? Nanoseconds a block
// (allocated and freed), wall; the counter device_MiB says how much device memory went while it ran.
//
// producer_consumer: one thread allocates batches of 64 blocks of 64 KiB on its stream, enqueues work on one
// and an event, and passes them on; another thread makes its stream wait for the event, enqueues work, and
// frees them on its stream. At most 8 batches are under way between the two: 32 MiB. Freed bytes must come
// back from the consumer's stream to the producer's.
//
// back_and_forth: one thread, two streams: 64 blocks of 4 KiB to 1 MiB are allocated on one stream, used and
// freed on it; then the same on the other, which was made to wait for the first.

#include "harness.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <thread>

namespace weir_bench {

namespace {

constexpr std::size_t blocks_a_batch = 64;

struct producer_consumer {
    static constexpr std::size_t bytes = 64 << 10;

    struct batch {
        std::array<void*, blocks_a_batch> blocks{};
        own_event filled;
        std::atomic<bool> full{false};
    };

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        int device = 0;
        weir::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
        own_stream const producing;
        own_stream const consuming;
        std::array<batch, 8> ring;
        Pool pool;
        std::size_t const taken_before = device_bytes_taken();
        std::atomic<bool> over{false};
        std::atomic<bool> failed{false};
        std::string error;

        auto const produce = [&](batch& each) {
            for (void*& p : each.blocks)
                p = pool.allocate(producing, bytes);
            enqueue_work(each.blocks[0], bytes, producing);
            each.filled.record(producing);
        };
        auto const consume = [&](batch& each) {
            each.filled.make_wait(consuming);
            enqueue_work(each.blocks[0], bytes, consuming);
            for (void* p : each.blocks)
                pool.deallocate(consuming, p, bytes);
        };
        for (int round = 0; round < 2; ++round) // both threads' pieces, once through, before the clock starts
            for (batch& each : ring) {
                produce(each);
                consume(each);
            }
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

        std::thread consumer([&] {
            try {
                weir::check_cuda(cudaSetDevice(device), "cudaSetDevice");
                for (std::size_t turn = 0;; ++turn) {
                    batch& each = ring[turn % ring.size()];
                    while (!each.full.load(std::memory_order_acquire)) {
                        if (over.load(std::memory_order_acquire) &&
                            !each.full.load(std::memory_order_acquire))
                            return;
                        std::this_thread::yield();
                    }
                    consume(each);
                    each.full.store(false, std::memory_order_release);
                }
            } catch (std::exception const& caught) {
                error = caught.what();
                failed.store(true);
            }
        });
        clock::time_point const start = clock::now();
        std::size_t batches = 0;
        try {
            do {
                batch& each = ring[batches % ring.size()];
                while (each.full.load(std::memory_order_acquire) && !failed.load())
                    std::this_thread::yield();
                if (failed.load())
                    break;
                produce(each);
                each.full.store(true, std::memory_order_release);
                ++batches;
            } while (clock::now() - start < time_budget());
        } catch (...) {
            over.store(true, std::memory_order_release);
            consumer.join();
            throw;
        }
        over.store(true, std::memory_order_release);
        consumer.join();
        clock::time_point const end = clock::now();
        if (failed.load())
            throw std::runtime_error(error);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        count_device_memory<Pool>(state, taken_before);
        return std::chrono::duration<double, std::nano>(end - start).count() /
               static_cast<double>(batches * blocks_a_batch);
    }
};

struct back_and_forth {
    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        std::vector<std::size_t> const sizes = log_uniform(blocks_a_batch, 4 << 10, 1 << 20, 5);
        std::array<own_stream, 2> const streams;
        std::array<own_event, 2> const done;
        Pool pool;
        std::size_t const taken_before = device_bytes_taken();
        std::array<void*, blocks_a_batch> blocks{};
        auto const turn = [&](std::size_t side) {
            cudaStream_t const stream = streams[side];
            for (std::size_t i = 0; i < blocks_a_batch; ++i)
                blocks[i] = pool.allocate(stream, sizes[i]);
            enqueue_work(blocks[0], sizes[0], stream);
            for (std::size_t i = 0; i < blocks_a_batch; ++i)
                pool.deallocate(stream, blocks[i], sizes[i]);
            done[side].record(stream);
            done[side].make_wait(streams[1 - side]);
        };
        for (std::size_t i = 0; i < 8; ++i)
            turn(i % 2);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        clock::time_point const start = clock::now();
        std::size_t turns = 0;
        do {
            turn(turns % 2);
            ++turns;
        } while (clock::now() - start < time_budget());
        clock::time_point const end = clock::now();
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        count_device_memory<Pool>(state, taken_before);
        return std::chrono::duration<double, std::nano>(end - start).count() /
               static_cast<double>(turns * blocks_a_batch);
    }
};

} // namespace

void handover() {
    ask("handover/producer_consumer", many_threads | any_stream, producer_consumer{});
    ask("handover/back_and_forth", any_stream, back_and_forth{});
}

} // namespace weir_bench
