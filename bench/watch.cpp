// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: a program of its own, weir-bench-watch; needs weir, the CUDA runtime (or the simulated device) and threads.
//
// What does it cost to be watched? Pairs of 4 KiB on device_pool and promised_device_pool, bare and in layer::watch: while nobody
// watches, and while a thread in weir_top's place asks ten times a second; by one thread, and by 16 on streams of their own. The
// runs follow one another, bare and watched in turn, so that each watched one is compared with the bare ones around it; a row is
// the median, with its quartiles, of 'WEIR_BENCH_REPETITIONS' (default 41) comparisons of 'WEIR_BENCH_PAIRS' (default 400000) pairs.
//
//     build/release/bench/weir-bench-watch       on the simulated device
//     build/gpu-release/bench/weir-bench-watch   on a GPU

#include "../examples/weir_top/board_view.hpp"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>
#include <weir/layer/watch.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/promised_device_pool.hpp>
#include <weir/runtime/check.hpp>
#include <weir/trace/watch_board.hpp>

namespace {

using clock_type = std::chrono::steady_clock;

std::size_t setting(char const* name, std::size_t usual) {
    char const* const set = std::getenv(name);
    return set ? static_cast<std::size_t>(std::atoll(set)) : usual;
}

/// Wall nanoseconds a pair.
template <class Pool>
[[gnu::noinline]] double pairs(Pool& pool, std::vector<cudaStream_t> const& streams, std::size_t pairs_each) {
    auto const work = [&](std::size_t at, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            pool.deallocate(streams[at], pool.allocate(streams[at], 4096), 4096);
    };
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> crew;
    for (std::size_t at = 0; at < streams.size(); ++at)
        crew.emplace_back([&, at] {
            work(at, 1000);
            ++ready;
            while (!go)
                std::this_thread::yield();
            work(at, pairs_each);
        });
    while (ready != streams.size())
        std::this_thread::yield();
    auto const begin = clock_type::now();
    go = true;
    for (std::thread& each : crew)
        each.join();
    double const ns = std::chrono::duration<double, std::nano>(clock_type::now() - begin).count();
    return ns / static_cast<double>(streams.size() * pairs_each);
}

template <class Pool>
void compare(char const* name, std::size_t threads, bool asks) {
    std::vector<cudaStream_t> streams(threads);
    for (cudaStream_t& each : streams)
        weir::check_cuda(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    std::size_t const count = setting("WEIR_BENCH_PAIRS", 400000) / threads, repetitions = setting("WEIR_BENCH_REPETITIONS", 41);
    std::vector<double> more, all;
    std::uint64_t answers = 0;
    {
        weir::trace::watch_board board("bench");
        Pool bare;
        weir::layer::watch<Pool> watched(board);
        std::atomic<bool> done{false};
        std::thread watcher([&] {
            for (weir_top::board_view view(std::string(board.segment()).substr(1)); asks && !done; answers = view.read()[0].answers) {
                view.ask();
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
        });
        double before = pairs(bare, streams, count);
        for (std::size_t i = 0; i < repetitions; ++i) {
            double const with = pairs(watched, streams, count), after = pairs(bare, streams, count);
            more.push_back((2 * with / (before + after) - 1) * 100);
            all.push_back(after);
            before = after;
        }
        done = true;
        watcher.join();
        bare.settle();
        watched.settle();
    }
    for (cudaStream_t const each : streams)
        weir::check_cuda(cudaStreamDestroy(each), "cudaStreamDestroy");
    std::sort(more.begin(), more.end());
    std::sort(all.begin(), all.end());
    std::string const row = std::string(name) + ", " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
                            (asks ? "weir_top asks" : "nobody asks");
    std::printf("| %-52s | at most 1 | %6.1f | %6.2f (%.2f to %.2f) | %llu |\n", row.c_str(), all[all.size() / 2], more[more.size() / 2],
                more[more.size() / 4], more[more.size() * 3 / 4], static_cast<unsigned long long>(answers));
}

} // namespace

int main() {
    std::printf("| figure | asked, %% more | ns a pair, bare | measured, %% more | answers |\n|---|---|---:|---:|---:|\n");
    for (std::size_t const threads : {std::size_t{1}, std::size_t{16}})
        for (bool const asks : {false, true}) {
            compare<weir::device_pool>("device_pool", threads, asks);
            compare<weir::promised_device_pool>("promised_device_pool", threads, asks);
        }
    return 0;
}
