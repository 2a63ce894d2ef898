// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, CCCL's headers, the CUDA runtime (or the simulated device) and Google Benchmark; on
// the GPU sort_keys.cu, too.
//
// What does another library's way to a pool cost? A pair of 256 bytes on a device_pool: by its own members, by weir's reference,
// by the cuda::mr resource that stands for it, and by CCCL's type-erased reference to that. Then a sort of so many random keys
// by Thrust, from the call to its end, with Thrust's own storage and with a pool's.

#include "harness.hpp"

#include <weir/interop/cuda_mr.hpp>
#include <weir/recipes.hpp>
#ifndef WEIR_BENCH_SIMULATED
#include "sort_keys.hpp"
#endif

namespace weir_bench {

namespace {

// Registers a body that is of no pool in the harness's list: its name says which way it takes.
template <class Body>
void ask_once(std::string const& name, Body const& body) {
    auto const run = [body](benchmark::State& state) {
        for (auto _ : state) {
            if (is_out_of_time()) {
                state.SkipWithError("WEIR_BENCH_DEADLINE has passed");
                break;
            }
            try {
                state.SetIterationTime(body() * 1e-9);
            } catch (std::exception const& error) {
                state.SkipWithError(error.what());
                break;
            }
        }
    };
    benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(1)->UseManualTime()->Unit(benchmark::kNanosecond);
}

using plug = weir::interop::cuda_mr::resource<weir::device_pool>;
#if CCCL_VERSION >= 3001000
using erased = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
struct erased : cuda::mr::async_resource_ref<cuda::mr::device_accessible> {
    using cuda::mr::async_resource_ref<cuda::mr::device_accessible>::basic_resource_ref;
    void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) {
        return this->allocate_async(bytes, alignment, stream);
    }
    void deallocate(cuda::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) {
        this->deallocate_async(p, bytes, alignment, stream);
    }
};
#endif

constexpr std::size_t bytes = 256;

// Pairs by one way: `reach(pool, mr)` makes it.
template <class Stream, class Reach>
double pairs_by(Reach const& reach) {
    own_stream const own;
    Stream const stream(static_cast<cudaStream_t>(own));
    weir::device_pool pool;
    plug mr(pool);
    auto&& way = reach(pool, mr);
    std::size_t const pairs_a_batch = count(1024, 4);
    auto const batch = [&] {
        for (std::size_t i = 0; i < pairs_a_batch; ++i) {
            void* p = way.allocate(stream, bytes, 256);
            benchmark::DoNotOptimize(p);
            way.deallocate(stream, p, bytes, 256);
        }
    };
    batch();
    own.drain();
    return nanoseconds_per(pairs_a_batch, own, batch);
}

#ifndef WEIR_BENCH_SIMULATED
// Fresh keys, which are sorted and waited for; making them is not timed.
double sorts(std::size_t keys, bool on_a_pool) {
    own_stream const stream;
    weir::device_pool pool;
    std::vector<unsigned> host(keys);
    std::mt19937 random(1);
    for (unsigned& each : host)
        each = static_cast<unsigned>(random());
    std::size_t const key_bytes = keys * sizeof(unsigned);
    auto* const fresh = static_cast<unsigned*>(pool.allocate(stream, key_bytes));
    auto* const sorted = static_cast<unsigned*>(pool.allocate(stream, key_bytes));
    weir::check_cuda(cudaMemcpyAsync(fresh, host.data(), key_bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    std::chrono::nanoseconds spent{0};
    std::size_t rounds = 0;
    for (bool warm = false; !warm || spent < time_budget(); warm = true) {
        weir::check_cuda(cudaMemcpyAsync(sorted, fresh, key_bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
        stream.drain();
        clock::time_point const start = clock::now();
        on_a_pool ? sort_keys(sorted, keys, stream, pool) : sort_keys(sorted, keys, stream);
        stream.drain();
        spent += warm ? clock::now() - start : std::chrono::nanoseconds{0};
        rounds += warm;
    }
    pool.deallocate(stream, fresh, key_bytes);
    pool.deallocate(stream, sorted, key_bytes);
    return static_cast<double>(spent.count()) / static_cast<double>(rounds);
}
#endif

} // namespace

void interop() {
    ask_once("interop/pair_256_B/own members",
             [] { return pairs_by<weir::stream_ref>([](weir::device_pool& pool, plug&) -> weir::device_pool& { return pool; }); });
    ask_once("interop/pair_256_B/pool_ref", [] {
        return pairs_by<weir::stream_ref>(
            [](weir::device_pool& pool, plug&) { return weir::pool_ref<weir::memory_space::device>(pool); });
    });
    ask_once("interop/pair_256_B/cuda_mr::resource",
             [] { return pairs_by<cuda::stream_ref>([](weir::device_pool&, plug& mr) -> plug& { return mr; }); });
    ask_once("interop/pair_256_B/CCCL's reference",
             [] { return pairs_by<cuda::stream_ref>([](weir::device_pool&, plug& mr) { return erased(mr); }); });
#ifndef WEIR_BENCH_SIMULATED
    for (std::size_t keys = 1000; keys <= 100'000'000; keys *= 10) {
        std::string const question = "interop/sort_" + std::to_string(keys) + "_keys/";
        ask_once(question + "Thrust's storage", [keys] { return sorts(keys, false); });
        ask_once(question + "device_pool", [keys] { return sorts(keys, true); });
    }
#endif
}

} // namespace weir_bench
