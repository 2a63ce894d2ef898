// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench, with the replay example's trace.cpp; needs weir, the CUDA runtime (or the simulated
// device), Google Benchmark and zlib.
//
// What does a pool cost that does what a real program did? Every trace of a folder (WEIR_BENCH_TRACES; by default
// the example's) at full speed: nanoseconds a call (an allocate or a free), over passes through a pool that saw the
// trace once before, as a program's next step finds it. The counter Mcalls_per_s is the same in millions a second;
// cold_ns is the first pass, growth included, and device_MiB what the pool holds of the device after it. Who gives
// nothing back by itself, as RMM's pools and CUDA's as it is set up here, held no more before.
//
// not for:   how much memory a pool takes for a trace while it grows: 'replay' of examples/ shows that.

#include "../examples/replay/trace.hpp"
#include "harness.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

namespace weir_bench {

namespace {

// Read when it is first asked for: most runs ask other questions.
::replay::trace const& trace_of(std::string const& path) {
    static std::map<std::string, ::replay::trace> read;
    auto const found = read.find(path);
    if (found != read.end())
        return found->second;
    ::replay::trace trace = ::replay::read_trace(path);
    trace.events.resize(std::min(trace.events.size(), count(trace.events.size(), 2000)));
    return read.emplace(path, std::move(trace)).first->second;
}

struct at_full_speed {
    std::string path;

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        ::replay::trace const& trace = trace_of(path);
        std::vector<own_stream> const streams(trace.streams);
        std::vector<void*> blocks(trace.blocks);
        std::size_t const taken_before = device_bytes_taken();
        Pool pool;
        auto const pass = [&] {
            clock::time_point const start = clock::now();
            for (::replay::event const& event : trace.events) {
                void*& p = blocks[event.block];
                if (!event.is_free)
                    p = pool.allocate(streams[event.stream], event.bytes);
                else
                    pool.deallocate(streams[event.stream], std::exchange(p, nullptr), event.bytes);
            }
            std::chrono::nanoseconds const spent = clock::now() - start;
            for (::replay::event const& event : trace.events) // what outlives the trace
                if (!event.is_free && blocks[event.block])
                    pool.deallocate(streams[event.stream], std::exchange(blocks[event.block], nullptr),
                                    event.bytes);
            weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            return spent;
        };
        double const calls = static_cast<double>(trace.events.size());
        state.counters["cold_ns"] = static_cast<double>(pass().count()) / calls;
        count_device_memory<Pool>(state, taken_before);
        std::chrono::nanoseconds spent{0};
        double passes = 0;
        do {
            spent += pass();
            ++passes;
        } while (spent < time_budget());
        double const each = static_cast<double>(spent.count()) / (passes * calls);
        state.counters["Mcalls_per_s"] = 1000 / each;
        return each;
    }
};

} // namespace

void traces() {
    char const* const set = std::getenv("WEIR_BENCH_TRACES");
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (auto const& entry : std::filesystem::directory_iterator(set ? set : WEIR_BENCH_TRACES, error))
        if (entry.path().filename().string().find(".csv") != std::string::npos)
            found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    for (std::filesystem::path const& path : found) {
        std::string const name = path.filename().string();
        ask("traces/" + name.substr(0, name.find(".csv")), bulk, at_full_speed{path.string()});
    }
}

} // namespace weir_bench
