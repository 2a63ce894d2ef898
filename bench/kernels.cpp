// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: part of weir-bench; needs weir, the CUDA runtime and busy_kernel.cu (or the simulated device) and Google
// Benchmark.
//
// Does a pool make independent work wait? 8 streams, 8 kernels on each, each kernel with a temporary buffer of 1
// MiB that is allocated before it and freed after it, without waiting: wall nanoseconds until all 64 have run, and
// the counter percent_over_bare: how much more that is than the same kernels on 8 buffers that were there before.
// Both are measured in turn; medians. A pool that gives one stream's memory to another by making it wait, or a
// driver that stops the device, shows as kernels that no longer run side by side: up to 8 times.

#include "busy_kernel.hpp"
#include "harness.hpp"

#include <algorithm>
#include <array>

namespace weir_bench {

namespace {

struct eight_by_eight {
    static constexpr std::size_t bytes = 1 << 20;
    static constexpr std::size_t kernels_a_stream = 8;

    struct device_free {
        void operator()(void* p) const { static_cast<void>(cudaFree(p)); }
    };
    using buffer = std::unique_ptr<void, device_free>;

    static double median(std::vector<double>& walls) {
        auto const middle = walls.begin() + static_cast<std::ptrdiff_t>(walls.size() / 2);
        std::nth_element(walls.begin(), middle, walls.end());
        return *middle;
    }

    template <class Pool>
    double operator()(type_of<Pool>, benchmark::State& state) const {
        std::array<own_stream, 8> const streams;
        std::array<buffer, 8> buffers;
        for (buffer& each : buffers) {
            void* p = nullptr;
            weir::check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
            each.reset(p);
        }
        Pool pool;
        auto const wall = [&](auto const& kernel_on) {
            clock::time_point const start = clock::now();
            for (std::size_t round = 0; round < kernels_a_stream; ++round)
                for (std::size_t i = 0; i < streams.size(); ++i)
                    kernel_on(i);
            weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            return std::chrono::duration<double, std::nano>(clock::now() - start).count();
        };
        auto const bare = [&](std::size_t i) {
            weir::check_cuda(launch_busy_kernel(streams[i], buffers[i].get(), bytes), "launch of a kernel");
        };
        auto const pooled = [&](std::size_t i) {
            void* const p = pool.allocate(streams[i], bytes);
            weir::check_cuda(launch_busy_kernel(streams[i], p, bytes), "launch of a kernel");
            pool.deallocate(streams[i], p, bytes);
        };
        wall(bare);
        wall(pooled);
        std::vector<double> bare_walls;
        std::vector<double> pooled_walls;
        double spent = 0;
        do {
            bare_walls.push_back(wall(bare));
            pooled_walls.push_back(wall(pooled));
            spent += pooled_walls.back();
        } while (spent < static_cast<double>(time_budget().count()));
        double const without = median(bare_walls);
        double const with = median(pooled_walls);
        state.counters["percent_over_bare"] = 100 * (with - without) / without;
        return with;
    }
};

} // namespace

void kernels() {
    ask("kernels/8_streams_by_8", in_flight, eight_by_eight{});
}

} // namespace weir_bench
