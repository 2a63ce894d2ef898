// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a question put to a pool by many threads at once?
//
// Each thread makes one piece of work that does not count, waits for the others, and makes pieces until the time
// is over. Wall time from the start of the first to the end of the last, over all operations: with n threads, a
// pool that scales takes an n-th of what one thread takes.
//
// invariant: a thread never waits for another within a piece, so all of them see the end.
// not for:   draining streams: nobody waits for the device, so a pool that records events at each free meets CUDA's
//            queue too, as in life.

#include "harness.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

namespace weir_bench {

/// work(thread), of threads 0 to `threads` - 1, makes a piece of work and returns its operations; 0: there was
/// nothing to do. Returns wall nanoseconds over all operations; throws std::runtime_error if a piece threw.
template <class Work>
double wall_nanoseconds_per(std::size_t threads, Work const& work) {
    struct alignas(128) lane {
        std::size_t operations = 0;
        clock::time_point end;
        std::string error;
    };
    int device = 0;
    weir::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    std::vector<lane> lanes(threads);
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::atomic<bool> stop{false};
    auto const run = [&](std::size_t thread) {
        lane& mine = lanes[thread];
        bool is_ready = false;
        try {
            weir::check_cuda(cudaSetDevice(device), "cudaSetDevice");
            work(thread);
            is_ready = true;
            ready.fetch_add(1);
            while (!go.load(std::memory_order_acquire))
                std::this_thread::yield();
            clock::time_point const last = clock::now() + time_budget();
            do {
                std::size_t const done = work(thread);
                mine.operations += done;
                if (done == 0)
                    std::this_thread::yield();
                if (thread == 0 && clock::now() >= last)
                    stop.store(true, std::memory_order_relaxed);
            } while (!stop.load(std::memory_order_relaxed));
        } catch (std::exception const& error) {
            mine.error = error.what();
            stop.store(true);
            if (!is_ready)
                ready.fetch_add(1);
        }
        mine.end = clock::now();
    };
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < threads; ++i)
        running.emplace_back(run, i);
    while (ready.load() != threads)
        std::this_thread::yield();
    cudaError_t const drained = cudaDeviceSynchronize();
    clock::time_point const start = clock::now();
    go.store(true, std::memory_order_release);
    for (std::thread& thread : running)
        thread.join();
    weir::check_cuda(drained, "cudaDeviceSynchronize");

    std::size_t operations = 0;
    clock::time_point end = start;
    for (lane const& each : lanes) {
        if (!each.error.empty())
            throw std::runtime_error(each.error);
        operations += each.operations;
        end = std::max(end, each.end);
    }
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return std::chrono::duration<double, std::nano>(end - start).count() / static_cast<double>(operations);
}

} // namespace weir_bench
