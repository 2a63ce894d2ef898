// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device), Google Benchmark and
// threads.
//
// What do the allocation shapes cost that allocators of host memory are measured by? Wall nanoseconds over all
// calls (an allocate or a free) of 8 threads, each on a stream of its own. Sizes are log-uniform; the shapes are
// those of the programs, the code and the sizes are not, for no device pool hands out 16 bytes.
//
// larson: a server. A thread replaces random ones of its 1,000 live blocks of 256 B to 64 KiB; then it ends, and a
// new thread goes on with its blocks on its stream. xmalloc: 4 threads allocate batches of 256 blocks of 512 B to
// 32 KiB, 4 others free them, on the streams that they were allocated on. sh6bench: groups of blocks of one size,
// many small ones, few large; the younger half of a group is freed at once, last in first out; the older half
// later, first in first out. mstress: a thread replaces random ones of its 500 live blocks of 256 B to 256 KiB, and
// exchanges every fourth with what another thread left in a list of all; a block is freed on the stream that it
// was allocated on, by whoever has it.

#include "crew.hpp"

#include <array>
#include <future>
#include <mutex>

namespace weir_bench {

namespace {

constexpr std::size_t threads_in_all = 8;
constexpr std::size_t steps_drawn = 4096; // random numbers are drawn beforehand, and used again and again

struct step {
    std::size_t bytes;
    std::uint32_t slot;
};

// The same steps for all pools, others for each thread.
std::vector<step> draw_steps(std::size_t slots, std::size_t most_bytes, std::uint64_t seed) {
    std::vector<std::size_t> const sizes = log_uniform(steps_drawn, 256, most_bytes, seed);
    std::mt19937_64 random(seed + 1000);
    std::vector<step> steps(steps_drawn);
    for (std::size_t i = 0; i < steps_drawn; ++i)
        steps[i] = step{sizes[i], static_cast<std::uint32_t>(random() % slots)};
    return steps;
}

struct larson {
    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        std::size_t const live = count(1000, 50);
        std::size_t const steps_a_thread = count(steps_drawn, 128);
        struct worker {
            own_stream stream;
            std::vector<step> steps;
            std::vector<block> blocks;
        };
        std::array<worker, threads_in_all> workers;
        Pool pool;
        for (std::size_t i = 0; i < threads_in_all; ++i) {
            workers[i].steps = draw_steps(live, 64 << 10, i);
            for (std::size_t k = 0; k < live; ++k) {
                std::size_t const bytes = workers[i].steps[k].bytes;
                workers[i].blocks.push_back(block{pool.allocate(workers[i].stream, bytes), bytes});
            }
        }
        double const each = wall_nanoseconds_per(threads_in_all, [&](std::size_t thread) {
            auto const life = [&, thread] {
                worker& mine = workers[thread];
                for (std::size_t i = 0; i < steps_a_thread; ++i) {
                    block& victim = mine.blocks[mine.steps[i].slot];
                    pool.deallocate(mine.stream, victim.p, victim.bytes);
                    victim.bytes = mine.steps[i].bytes;
                    victim.p = pool.allocate(mine.stream, victim.bytes);
                }
            };
            std::async(std::launch::async, life).get(); // a thread that ends; its exceptions come here
            return 2 * steps_a_thread;
        });
        for (worker const& each_worker : workers)
            for (block const& left : each_worker.blocks)
                pool.deallocate(each_worker.stream, left.p, left.bytes);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return each;
    }
};

struct xmalloc {
    static constexpr std::size_t blocks_a_batch = 256;
    static constexpr std::size_t allocating = threads_in_all / 2;

    struct batch {
        std::array<void*, blocks_a_batch> blocks{};
        std::size_t producer = 0;
    };

    // What threads pass on; null: nothing there.
    class queue {
    public:
        void push(batch* one) {
            std::lock_guard<std::mutex> const lock(mutex_);
            batches_.push_back(one);
        }
        batch* pop() {
            std::lock_guard<std::mutex> const lock(mutex_);
            if (batches_.empty())
                return nullptr;
            batch* const last = batches_.back();
            batches_.pop_back();
            return last;
        }

    private:
        std::mutex mutex_;
        std::vector<batch*> batches_;
    };

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        std::vector<std::size_t> const sizes = log_uniform(blocks_a_batch, 512, 32 << 10, 8);
        std::array<own_stream, allocating> const streams;
        std::vector<batch> batches(4 * allocating);
        queue empty;
        queue full;
        for (batch& each : batches)
            empty.push(&each);
        Pool pool;
        auto const free_all = [&](batch const& each) {
            for (std::size_t i = 0; i < blocks_a_batch; ++i)
                pool.deallocate(streams[each.producer], each.blocks[i], sizes[i]);
        };
        double const each = wall_nanoseconds_per(threads_in_all, [&](std::size_t thread) -> std::size_t {
            bool const allocates = thread < allocating;
            batch* const one = allocates ? empty.pop() : full.pop();
            if (!one)
                return 0;
            if (allocates) {
                one->producer = thread;
                for (std::size_t i = 0; i < blocks_a_batch; ++i)
                    one->blocks[i] = pool.allocate(streams[thread], sizes[i]);
                full.push(one);
            } else {
                free_all(*one);
                empty.push(one);
            }
            return blocks_a_batch;
        });
        while (batch const* const left = full.pop())
            free_all(*left);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return each;
    }
};

struct sh6bench {
    static constexpr std::size_t groups_kept = 16;
    // Of 256 B, 512 B, ... 64 KiB.
    static constexpr std::array<std::size_t, 9> blocks_of_size{64, 48, 32, 24, 16, 12, 8, 6, 4};

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        struct group {
            std::vector<void*> blocks;
            std::size_t bytes = 0;
        };
        struct worker {
            own_stream stream;
            std::array<group, groups_kept> kept;
            std::size_t turn = 0;
        };
        std::array<worker, threads_in_all> workers;
        Pool pool;
        auto const free_kept = [&](worker& mine, group& old) {
            for (void* p : old.blocks)
                pool.deallocate(mine.stream, p, old.bytes);
            old.blocks.clear();
        };
        double const each = wall_nanoseconds_per(threads_in_all, [&](std::size_t thread) {
            worker& mine = workers[thread];
            std::size_t calls = 0;
            for (std::size_t size = 0; size < blocks_of_size.size(); ++size) {
                group& now = mine.kept[mine.turn++ % groups_kept];
                calls += now.blocks.size();
                free_kept(mine, now);
                now.bytes = std::size_t{256} << size;
                for (std::size_t i = 0; i < blocks_of_size[size]; ++i)
                    now.blocks.push_back(pool.allocate(mine.stream, now.bytes));
                for (std::size_t i = 0; i < blocks_of_size[size] / 2; ++i) {
                    pool.deallocate(mine.stream, now.blocks.back(), now.bytes);
                    now.blocks.pop_back();
                }
                calls += blocks_of_size[size] + blocks_of_size[size] / 2;
            }
            return calls;
        });
        for (worker& each_worker : workers)
            for (group& left : each_worker.kept)
                free_kept(each_worker, left);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return each;
    }
};

struct mstress {
    static constexpr std::size_t exchanged = 512; // blocks in the list of all

    struct held {
        void* p = nullptr;
        std::size_t bytes = 0;
        std::size_t owner = 0; // whose stream it was allocated on
    };

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State&) const {
        std::size_t const live = count(500, 50);
        std::size_t const steps_a_piece = 64;
        struct worker {
            own_stream stream;
            std::vector<step> steps;
            std::vector<held*> blocks;
            std::size_t next = 0;
        };
        std::array<worker, threads_in_all> workers;
        std::vector<held> storage(threads_in_all * live + exchanged);
        std::vector<std::atomic<held*>> list(exchanged);
        Pool pool;
        held* unused = storage.data();
        for (std::size_t i = 0; i < threads_in_all; ++i) {
            workers[i].steps = draw_steps(live, 256 << 10, 20 + i);
            for (std::size_t k = 0; k < live; ++k)
                workers[i].blocks.push_back(unused++);
        }
        for (std::atomic<held*>& each : list)
            each.store(unused++);
        auto const free_one = [&](held& one) {
            if (one.p)
                pool.deallocate(workers[one.owner].stream, std::exchange(one.p, nullptr), one.bytes);
        };
        auto const replace = [&](std::size_t thread, held& one, std::size_t bytes) {
            free_one(one);
            one = held{pool.allocate(workers[thread].stream, bytes), bytes, thread};
        };
        for (std::size_t i = 0; i < threads_in_all; ++i)
            for (std::size_t k = 0; k < live; ++k)
                replace(i, *workers[i].blocks[k], workers[i].steps[k].bytes);
        for (std::size_t k = 0; k < exchanged; ++k)
            replace(k % threads_in_all, *list[k].load(), workers[0].steps[k].bytes);

        double const each = wall_nanoseconds_per(threads_in_all, [&](std::size_t thread) {
            worker& mine = workers[thread];
            for (std::size_t i = 0; i < steps_a_piece; ++i) {
                step const now = mine.steps[mine.next];
                held*& slot = mine.blocks[now.slot];
                if (mine.next % 4 == 0)
                    slot = list[(mine.next + 64 * thread + now.slot) % exchanged].exchange(slot);
                replace(thread, *slot, now.bytes);
                mine.next = mine.next + 1 == steps_drawn ? 0 : mine.next + 1;
            }
            return 2 * steps_a_piece;
        });
        for (held& left : storage)
            free_one(left);
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return each;
    }
};

} // namespace

void shapes() {
    ask("shapes/larson", many_threads | bulk, larson{});
    ask("shapes/xmalloc", many_threads | bulk, xmalloc{});
    ask("shapes/sh6bench", many_threads | bulk, sh6bench{});
    ask("shapes/mstress", many_threads | bulk, mstress{});
}

} // namespace weir_bench
