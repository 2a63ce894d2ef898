// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a question put to every pool in the same way?
//
// A question is a body: a class whose call operator takes a pool's type, makes a fresh pool of it, does the
// work and returns nanoseconds an operation. 'ask' registers it with Google Benchmark once for each pool that
// is able to do it. A repetition runs the body once, for a fixed time; repetitions of all pools are shuffled
// (--benchmark_enable_random_interleaving), and the median over them is what is reported.
//
// invariant: what is timed is the host: a stream is drained between batches, outside of the time.
// order:     pool and streams are new in every repetition; the body warms them up before the clock starts.
// cost:      a body runs for 'time_budget' (20 ms; a smoke run: one batch) plus what it sets up. A pool that has
//            had 'share' of a question (3 s) is asked no more: fewer of its repetitions are reported.
// not for:   time on the device.

#include "pools.hpp"

#include <benchmark/benchmark.h>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <malloc.h>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#include <weir/runtime/check.hpp>

namespace weir_bench {

using clock = std::chrono::steady_clock;

/// Whether this run only shows that nothing fails: WEIR_BENCH_SMOKE=1; simulated: unless it is 0.
inline bool is_smoke() {
    static bool const smoke = [] {
        char const* const set = std::getenv("WEIR_BENCH_SMOKE");
#ifdef WEIR_BENCH_SIMULATED
        return !set || std::strcmp(set, "0") != 0;
#else
        return set && std::strcmp(set, "0") != 0;
#endif
    }();
    return smoke;
}

/// How long a repetition measures: WEIR_BENCH_MS milliseconds, by default 20.
inline std::chrono::nanoseconds time_budget() {
    static std::chrono::nanoseconds const budget = [] {
        char const* const set = std::getenv("WEIR_BENCH_MS");
        return std::chrono::nanoseconds(is_smoke() ? 1 : 1'000'000 * (set ? std::atoll(set) : 20));
    }();
    return budget;
}

/// Whether WEIR_BENCH_DEADLINE seconds of the run have gone: what is left is then skipped, not cut off.
inline bool is_out_of_time() {
    static clock::time_point const start = clock::now();
    static char const* const set = std::getenv("WEIR_BENCH_DEADLINE");
    return set && clock::now() - start > std::chrono::seconds(std::atoll(set));
}

/// How long one pool may keep one question busy, all repetitions together: WEIR_BENCH_SHARE seconds, by default 3.
inline std::chrono::nanoseconds share() {
    static std::chrono::nanoseconds const share = [] {
        char const* const set = std::getenv("WEIR_BENCH_SHARE");
        return std::chrono::seconds(set ? std::atoll(set) : 3);
    }();
    return share;
}

/// Ends a body that takes longer than three shares: its loops of many calls ask now and then.
class patience {
public:
    void check() const {
        if (clock::now() - start_ > 3 * share())
            throw std::runtime_error("gave up: too slow for this question");
    }

private:
    clock::time_point start_ = clock::now();
};

/// A count that a smoke run makes smaller.
inline std::size_t count(std::size_t full, std::size_t smoke) {
    return is_smoke() ? smoke : full;
}

/// Waits for what was enqueued on the stream.
inline void drain(cudaStream_t stream) {
    weir::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

/// A non-blocking stream of its own.
class own_stream {
public:
    own_stream() {
        weir::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    own_stream(own_stream const&) = delete;
    own_stream& operator=(own_stream const&) = delete;
    ~own_stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
    operator cudaStream_t() const { return stream_; }
    void drain() const { weir_bench::drain(stream_); }

private:
    cudaStream_t stream_ = nullptr;
};

/// An event without timing.
class own_event {
public:
    own_event() { weir::check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
    own_event(own_event const&) = delete;
    own_event& operator=(own_event const&) = delete;
    ~own_event() { static_cast<void>(cudaEventDestroy(event_)); }
    void record(cudaStream_t stream) const {
        weir::check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
    }
    void make_wait(cudaStream_t stream) const {
        weir::check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
    }

private:
    cudaEvent_t event_ = nullptr;
};

/// A block that a body holds.
struct block {
    void* p = nullptr;
    std::size_t bytes = 0;
};

/// Sizes drawn log-uniformly from [least, most], the same ones in every run.
inline std::vector<std::size_t> log_uniform(std::size_t n, std::size_t least, std::size_t most,
                                            std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> exponent(std::log2(static_cast<double>(least)),
                                                    std::log2(static_cast<double>(most)));
    std::vector<std::size_t> sizes(n);
    for (std::size_t& size : sizes)
        size = static_cast<std::size_t>(std::exp2(exponent(random)));
    return sizes;
}

/// Bytes that live malloc blocks of this process hold: bookkeeping, for the most part.
inline std::size_t host_heap_bytes() {
    struct mallinfo2 const now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/// Bytes of the current device that are taken.
inline std::size_t device_bytes_taken() {
    std::size_t free = 0;
    std::size_t total = 0;
    weir::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return total - free;
}

/// MiB of the current device that went since `taken_before`.
inline double mebibytes_since(std::size_t taken_before) {
    std::size_t const now = device_bytes_taken();
    return now > taken_before ? static_cast<double>(now - taken_before) / (1 << 20) : 0;
}

/// The counter device_MiB: those that went meanwhile, of a pool of device memory.
template <class Pool>
void count_device_memory(benchmark::State& state, std::size_t taken_before) {
    if ((Pool::able & on_device) != 0)
        state.counters["device_MiB"] = mebibytes_since(taken_before);
}

/// Something that writes the bytes, on the stream.
inline void enqueue_work(void* p, std::size_t bytes, cudaStream_t stream) {
    weir::check_cuda(cudaMemsetAsync(p, 1, bytes, stream), "cudaMemsetAsync");
}

/// Runs batch() until the time budget is spent and returns nanoseconds an operation. Drains 'stream' between
/// batches, outside of the time: a host that runs far ahead of its device measures CUDA's back pressure.
template <class Batch>
double nanoseconds_per(std::size_t operations_a_batch, cudaStream_t stream, Batch&& batch) {
    std::chrono::nanoseconds spent{0};
    std::size_t batches = 0;
    do {
        clock::time_point const start = clock::now();
        batch();
        spent += clock::now() - start;
        ++batches;
        drain(stream);
    } while (spent < time_budget());
    return static_cast<double>(spent.count()) / static_cast<double>(batches * operations_a_batch);
}

/// Registers `body` as 'question/pool' for every pool that has all abilities of `needs`.
template <class Body>
void ask(std::string const& question, unsigned needs, Body const& body) {
    for_each_pool([&](auto tag) {
        using Pool = typename decltype(tag)::type;
        if ((Pool::able & needs) != needs)
            return;
        auto const spent = std::make_shared<std::chrono::nanoseconds>(0);
        auto const run = [body, tag, spent](benchmark::State& state) {
            for (auto _ : state) {
                if (is_out_of_time() || *spent > share()) {
                    state.SkipWithError(*spent > share() ? "WEIR_BENCH_SHARE is spent"
                                                         : "WEIR_BENCH_DEADLINE has passed");
                    break;
                }
                clock::time_point const start = clock::now();
                try {
                    state.SetIterationTime(body(tag, state) * 1e-9);
                } catch (std::exception const& error) {
                    *spent += clock::now() - start;
                    state.SkipWithError(error.what());
                    break;
                }
                *spent += clock::now() - start;
            }
        };
        auto* const registered = benchmark::RegisterBenchmark((question + "/" + Pool::name).c_str(), run);
        registered->Iterations(1)->UseManualTime()->Unit(benchmark::kNanosecond);
    });
}

// The questions, one a file; main calls them all.
void pairs();
void random_sizes();
void fragmented();
void threads();
void shapes();
void handover();
void kernels();
void streams();
void growth();
void suspension();
void page_locking();
void interop();
void live_blocks();
void side_by_side_pools();
void traces();

} // namespace weir_bench
