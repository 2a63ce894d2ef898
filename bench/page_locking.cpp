// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime (or the simulated device) and Google Benchmark.
//
// How long does it take to get page-locked memory, and to give it back? Nanoseconds for a chunk of 4 GiB, and for one of 1 MiB,
// by cudaHostAlloc and by upstream::registered_host, whose pages 1, 4, 8 or 16 threads touch; 'small' has
// no huge pages. The counter release_ms is what giving back takes.

#include "harness.hpp"

#include <string>
#include <weir/upstream/pinned.hpp>
#include <weir/upstream/registered_host.hpp>

namespace weir_bench {

namespace {

template <class Upstream>
void time_chunk(std::string const& name, std::size_t bytes, Upstream const& from) {
    auto const run = [from, bytes](benchmark::State& state) {
        for (auto _ : state) {
            if (is_out_of_time())
                return state.SkipWithError("WEIR_BENCH_DEADLINE has passed");
            Upstream upstream = from;
            clock::time_point const start = clock::now();
            void* const chunk = upstream.acquire(bytes);
            clock::time_point const there = clock::now();
            if (!chunk)
                return state.SkipWithError("the host has no room");
            upstream.release(chunk, bytes);
            state.counters["release_ms"] = std::chrono::duration<double, std::milli>(clock::now() - there).count();
            state.SetIterationTime(std::chrono::duration<double>(there - start).count());
        }
    };
    benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(1)->UseManualTime()->Unit(benchmark::kNanosecond);
}

} // namespace

void page_locking() {
    for (bool const large : {true, false}) {
        std::size_t const bytes = large ? count(std::size_t{4} << 30, std::size_t{16} << 20) : std::size_t{1} << 20;
        std::string const question = large ? "page_locking/4_GiB/" : "page_locking/1_MiB/";
        time_chunk(question + "cudaHostAlloc", bytes, weir::upstream::pinned<>{});
        for (unsigned const threads : {1u, 4u, 8u, 16u}) {
            auto const registered = weir::upstream::registered_host{}.threads(threads);
            std::string const name = question + "registered_by_" + std::to_string(threads);
            time_chunk(name, bytes, registered);
            if (large)
                time_chunk(name + "_small", bytes, weir::upstream::registered_host(registered).huge_pages(false));
        }
    }
}

} // namespace weir_bench
