// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: a program of its own, weir-bench-recording; needs weir, the CUDA runtime (or the simulated device) and threads.
//
// What does it cost to record? Pairs of 4 KiB on promised_device_pool: bare, in layer::record with the recorder off, and on; by one
// thread, and by 16 on streams of their own (wall time over all pairs). Then what a dump of a full ring and reading it back take.
// Prints a line 'figure,value' each; medians of 'WEIR_BENCH_REPETITIONS' (default 15) runs.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#include <weir/layer/record.hpp>
#include <weir/recipes/promised_device_pool.hpp>
#include <weir/runtime/check.hpp>
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

template <class Measure>
double median(Measure const& measure) {
    std::vector<double> all(setting("WEIR_BENCH_REPETITIONS", 15));
    for (double& each : all)
        each = measure();
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

void print(std::string const& figure, double value) {
    std::printf("%s,%.2f\n", figure.c_str(), value);
}

} // namespace

int main() {
    std::size_t const count = setting("WEIR_BENCH_PAIRS", 200000);
    for (std::size_t const threads : {std::size_t{1}, std::size_t{16}}) {
        std::string const where = std::to_string(threads) + (threads == 1 ? "_thread" : "_threads");
        weir::promised_device_pool bare;
        weir::trace::recorder tape;
        weir::layer::record<weir::promised_device_pool> recorded(tape);
        print("ns_a_pair_bare_" + where, median([&] { return pairs(bare, threads, count / threads); }));
        print("ns_a_pair_off_" + where, median([&] { return pairs(recorded, threads, count / threads); }));
        tape.start();
        print("ns_a_pair_on_" + where, median([&] { return pairs(recorded, threads, count / threads); }));
    }

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
    print("bytes_an_event_in_the_ring", static_cast<double>(sizeof(weir::trace::event)));
    print("bytes_an_event_in_the_file", static_cast<double>(bytes.size()) / events);
    print("dump_ns_an_event", dump_ns / events);
    print("dump_MB_of_ring_a_second", events * sizeof(weir::trace::event) / dump_ns * 1000);
    print("dump_MB_of_file_a_second", static_cast<double>(bytes.size()) / dump_ns * 1000);
    print("read_ns_an_event", read_ns / events);
    return 0;
}
