// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: a program of its own, weir-bench-recording; needs weir, the CUDA runtime (or the simulated device) and threads.
//
// What does it cost to record? Pairs of 4 KiB on promised_device_pool: not recorded, in layer::record with the recorder off,
// and on; by one thread, and by 16 on streams of their own (wall time over all calls). Then what whole stacks add to an
// allocation, and what a dump of a full ring and reading it back take. Prints a table of what is asked and what was measured: medians of 'WEIR_BENCH_REPETITIONS' (default
// 15) runs in turn, of 'WEIR_BENCH_PAIRS' (default 200000) pairs.
//
//     build/release/bench/weir-bench-recording       on the simulated device
//     build/gpu-release/bench/weir-bench-recording   on a GPU

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#include <weir/layer/record.hpp>
#include <weir/recipes/promised_device_pool.hpp>
#include <weir/runtime/check.hpp>
#include <weir/trace/call_stacks.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/trace/recording.hpp>
#include <weir/trace/recording_file.hpp>

namespace {

using clock_type = std::chrono::steady_clock;

double ns_since(clock_type::time_point begin) {
    return std::chrono::duration<double, std::nano>(clock_type::now() - begin).count();
}

std::size_t setting(char const* name, std::size_t usual) {
    char const* const set = std::getenv(name);
    return set ? static_cast<std::size_t>(std::atoll(set)) : usual;
}

double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

/// Wall nanoseconds a pair.
template <class Pool>
double pairs(Pool& pool, std::size_t threads, std::size_t pairs_each) {
    std::vector<cudaStream_t> streams(threads);
    for (cudaStream_t& each : streams)
        weir::check_cuda(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> crew;
    auto const work = [&](std::size_t at, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            pool.deallocate(streams[at], pool.allocate(streams[at], 4096), 4096);
    };
    for (std::size_t at = 0; at < threads; ++at)
        crew.emplace_back([&, at] {
            work(at, 100);
            ++ready;
            while (!go)
                std::this_thread::yield();
            work(at, pairs_each);
        });
    while (ready != threads)
        std::this_thread::yield();
    auto const begin = clock_type::now();
    go = true;
    for (std::thread& each : crew)
        each.join();
    double const ns = ns_since(begin) / static_cast<double>(threads * pairs_each);
    pool.settle();
    for (cudaStream_t const each : streams)
        weir::check_cuda(cudaStreamDestroy(each), "cudaStreamDestroy");
    return ns;
}

// One row of the table. `asked`: "" where nothing is.
void print(std::string const& figure, char const* asked, double measured) {
    std::printf("| %-48s | %-12s | %9.2f |\n", figure.c_str(), asked, measured);
}

// What recording costs a call, on so many threads.
void print_calls(std::size_t threads, std::size_t count, char const* asked_on) {
    weir::promised_device_pool bare;
    weir::trace::recorder tape;
    weir::layer::record<weir::promised_device_pool> recorded(tape);
    std::size_t const repetitions = setting("WEIR_BENCH_REPETITIONS", 15);
    std::vector<double> ns, off, on;
    for (std::size_t i = 0; i < repetitions; ++i) { // in turn, so that all three see the same machine
        ns.push_back(pairs(bare, threads, count / threads) / 2);
        tape.stop();
        off.push_back(pairs(recorded, threads, count / threads) / 2 - ns.back());
        tape.start();
        on.push_back(pairs(recorded, threads, count / threads) / 2 - ns.back());
    }
    std::string const where = threads == 1 ? ", 1 thread" : ", " + std::to_string(threads) + " threads";
    print("ns a call, not recorded" + where, "", median(ns));
    print("ns more a call, recorder off" + where, "at most 1", median(off));
    print("ns more a call, recorder on" + where, asked_on, median(on));
}

// What whole stacks add to an allocation.
void print_stacks(std::size_t count) {
    weir::trace::recorder tape;
    weir::layer::record<weir::promised_device_pool> lines(tape);
    weir::layer::record<weir::promised_device_pool, weir::trace::call_stacks<>> stacks(tape);
    tape.start();
    std::vector<double> more;
    for (std::size_t i = 0, repetitions = setting("WEIR_BENCH_REPETITIONS", 15); i < repetitions; ++i) {
        double const without = pairs(lines, 1, count);
        more.push_back(pairs(stacks, 1, count) - without);
    }
    std::size_t frames = 0;
    for (std::size_t at = tape.names().size(); at != 0; at = tape.names()[at].caller)
        ++frames;
    print("ns more an allocation, stacks of " + std::to_string(frames) + " frames", "", median(more));
}

} // namespace

int main() {
    std::size_t const count = setting("WEIR_BENCH_PAIRS", 200000);
    std::printf("| figure                                           | asked        |  measured |\n|---|---|---:|\n");
    print_calls(1, count, "at most 45");
    print_calls(16, count, "at most 10");
    print_stacks(count);

    std::string const path = (std::filesystem::temp_directory_path() / ("weir-bench-" + std::to_string(::getpid()))).string();
    weir::trace::recorder tape(2 * count);
    weir::layer::record<weir::promised_device_pool> pool(tape);
    std::vector<void*> blocks(1000);
    tape.start();
    for (std::size_t i = 0; i < 2 * count; ++i) { // sizes that come again
        void*& block = blocks[i * 7919 % blocks.size()];
        std::size_t const bytes = 512 * (1 + i * 7919 % blocks.size() % 300);
        if (block)
            pool.deallocate(weir::on_host, block, bytes);
        block = block ? nullptr : pool.allocate(weir::on_host, bytes);
    }
    auto const begin = clock_type::now();
    weir::trace::dump(tape, path);
    double const dump_ns = ns_since(begin);
    std::ifstream in(path, std::ios::binary);
    std::vector<char> const bytes((std::istreambuf_iterator<char>(in)), {});
    auto const read_begin = clock_type::now();
    weir::trace::recording const read = weir::trace::read_recording(bytes.data(), bytes.size());
    double const read_ns = ns_since(read_begin);
    std::filesystem::remove(path);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (blocks[i])
            pool.deallocate(weir::on_host, blocks[i], 512 * (1 + i % 300));
    auto const events = static_cast<double>(read.events.size());
    auto const ring_bytes = static_cast<double>(tape.memory_bytes()) / static_cast<double>(tape.ring()->capacity());
    print("bytes an event, in the recorder", "at most 54", ring_bytes);
    print("bytes an event, in the file", "at most 8", static_cast<double>(bytes.size()) / events);
    print("MB/s of the recorder's memory, dumped", "at least 100", events * ring_bytes / dump_ns * 1000);
    print("MB/s of the file, dumped", "", static_cast<double>(bytes.size()) / dump_ns * 1000);
    print("ns an event, dumped", "", dump_ns / events);
    print("ns an event, read", "", read_ns / events);
    return 0;
}
