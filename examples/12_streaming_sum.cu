// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A streaming sum: a file larger than the pool's limit, chunk by chunk. Each chunk adds to sums that stay on the device.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/staging.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
#endif
constexpr std::size_t file_size = 128 * weir::MiB, most_held = 24 * weir::MiB, lanes = 16384;
struct add_up { // lane j adds every 16384th number, beginning with the j-th
    weir::staging::device_chunk<float> chunk;
    double* sums;
    __host__ __device__ void operator()(std::size_t j) const {
        for (std::size_t i = j; i < chunk.size; i += lanes)
            sums[j] += static_cast<double>(chunk.data[i]);
    }
};
int main() try {
    weir::stream_ref const stream = cudaStreamPerThread;
    std::vector<float> numbers(file_size / sizeof(float), 0.5f);
    std::ofstream("numbers.tmp", std::ios::binary).write(reinterpret_cast<char const*>(numbers.data()), file_size);
    auto const speed_of = [&](auto const& work, double bytes) { // GB/s
        auto const begin = std::chrono::steady_clock::now();
        work(), weir::synchronize(stream);
        return bytes / 1e9 / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    weir::pinned_pool pinned;
    weir::staging::pinned_ring ring(pinned);
    weir::device_pool pool{weir::pool_options{}.limit(most_held)};
    weir::device_vector<double> sums(pool, stream, std::vector<double>(lanes));
    auto const bar = weir::staging::streaming_options{}.progress([](auto const& now) {
        std::fprintf(stderr, "\r[%-20.*s]", static_cast<int>(20 * now.done_count / now.total_count), "####################");
    });
    auto const add = [&](weir::stream_ref on, auto const& chunk) {
        thrust::for_each_n(weir::interop::thrust::par_nosync(pool, on), thrust::make_counting_iterator(std::size_t{0}), lanes,
                           add_up{chunk, sums.data()});
    };
    auto const all = [&] { stream_chunks(ring, pool, stream, weir::staging::from_file<float>("numbers.tmp"), bar, add); };
    double const speed = speed_of(all, static_cast<double>(file_size));
    auto const parts = sums.to_host_sync<std::vector>();
    std::printf("\n%zu numbers sum to %.1f; the pool held %zu MiB\n", numbers.size(),
                std::accumulate(parts.begin(), parts.end(), 0.0), pool.reserved_bytes() / weir::MiB);
    weir::pinned_vector<char> locked(pinned, stream, 8 * weir::MiB);
    weir::device_vector<char> there(pool, stream, locked.size());
    double const link = speed_of([&] { there.assign(locked); }, static_cast<double>(locked.size()));
    std::printf("%.1f GB/s, %.0f %% of what a copy of pinned memory reaches\n", speed, 100 * speed / link);
    return std::remove("numbers.tmp");
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
