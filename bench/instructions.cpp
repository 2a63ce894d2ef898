// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: target 'weir-instructions', of this file alone: C++17, -O2 -DNDEBUG always, weir, the simulated
// device in place of the CUDA runtime, and, to count anything, valgrind/callgrind.h (Debian: valgrind).
// bench/instructions.sh runs it.
//
// How many instructions does a hot pair take? Times need a GPU and move from machine to machine; instructions
// are counted by callgrind anywhere and stay as they are, so CI can see a pool grow heavier by a few of them.
//
// Every pool is warmed up, and then only its next pairs are instrumented, in a dump of their own that is
// named after the pool. CUDA's functions are the simulator's here: instructions.py counts their calls and
// leaves their instructions out. The bare loop is a row of its own and is taken off all others. The program says
// what compiled it: counts of one compiler say nothing about those of another.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/recipes.hpp>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else // it compiles, and says at run time what is missing
#define RUNNING_ON_VALGRIND 0
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_DUMP_STATS_AT(title) static_cast<void>(title)
#endif

namespace {

constexpr int pairs = 1000;

// The value is unknown to the compiler from here on.
template <class T>
void forget(T& value) {
    asm volatile("" : "+r"(value) : : "memory");
}

struct no_pool {
    void* allocate(cudaStream_t, std::size_t) { return this; }
    void deallocate(cudaStream_t, void*, std::size_t) {}
};

struct watched_pool : weir::layer::limit<weir::layer::statistics<weir::device_pool>> {
    watched_pool() : limit(2 * weir::GiB) {}
};

template <class Pool>
[[gnu::noinline]] void hot_pairs(Pool& pool, cudaStream_t stream, std::size_t bytes, int n) {
    for (int i = 0; i < n; ++i) {
        std::size_t asked = bytes;
        forget(asked);
        void* p = pool.allocate(stream, asked);
        forget(p);
        pool.deallocate(stream, p, asked);
    }
}

template <class Pool>
void count_pairs(char const* name, std::size_t bytes) {
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        std::abort();
    {
        Pool pool;
        hot_pairs(pool, stream, bytes, 300);
        cudaStreamSynchronize(stream);
        CALLGRIND_START_INSTRUMENTATION;
        hot_pairs(pool, stream, bytes, pairs);
        CALLGRIND_STOP_INSTRUMENTATION;
        std::string const title =
            std::string(name) + " " + std::to_string(bytes) + " " + std::to_string(pairs);
        CALLGRIND_DUMP_STATS_AT(title.c_str());
    }
    cudaStreamDestroy(stream);
}

template <class Pool>
void count_sizes(char const* name) {
    for (std::size_t const bytes : {std::size_t{256}, std::size_t{64} << 10, std::size_t{1} << 20})
        count_pairs<Pool>(name, bytes);
}

template <class Reuse>
using pool_of = weir::pool<weir::upstream::device, weir::recipes::general_placement, Reuse>;

} // namespace

int main() {
    if (!RUNNING_ON_VALGRIND)
        std::puts("weir-instructions: nothing is counted: run 'sh bench/instructions.sh' on this program, "
                  "built where valgrind/callgrind.h is (Debian: valgrind)");
#ifdef __clang__
    std::puts("compiler: clang++ " __clang_version__);
#else
    std::puts("compiler: g++ " __VERSION__);
#endif
    simulated_cuda::config machine;
    machine.memory_bytes = 4 * weir::GiB; // valgrind refuses the reservation of a large one
    machine.pinned_bytes = weir::GiB;
    simulated_cuda::reset(machine);
    count_pairs<no_pool>("(loop)", 256);
    count_sizes<weir::device_pool>("device_pool");
    count_sizes<weir::promised_device_pool>("promised_device_pool");
    count_sizes<watched_pool>("limit<statistics<device_pool>>");
    count_sizes<pool_of<weir::reuse::after_event>>("after_event");
    count_sizes<pool_of<weir::reuse::immediate>>("immediate");
    count_pairs<weir::pool<weir::upstream::pinned<>, weir::placement::slab<256>, weir::reuse::immediate>>(
        "slab<256>, immediate", 256);
    count_pairs<weir::driver_pool>("driver_pool", 256);
    return 0;
}
