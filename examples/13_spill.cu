// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A working set twice as large as its budget: buffers leave the device for pinned memory, and come back when they are accessed.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.
#include <chrono>
#include <cstdio>
#include <thrust/count.h>
#include <thrust/fill.h>
#include <thrust/replace.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/staging.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
#endif
constexpr std::size_t parts = 16, part_bytes = 16 * weir::MiB, numbers = part_bytes / sizeof(float);
int main() try {
    weir::stream_ref const stream = cudaStreamPerThread;
    weir::device_pool pool;
    weir::pinned_pool pinned;
    weir::staging::spill_set<> set(pool, pinned, parts * part_bytes / 2); // what it may have on the device
    std::vector<weir::staging::spillable<float>> all;
    while (all.size() != parts)
        all.emplace_back(set, numbers);
    pool.reserve(parts * part_bytes / 2), pinned.reserve((parts + 2) * part_bytes); // before the clock runs
    auto const on = weir::interop::thrust::par_nosync(pool, stream);
    auto const speed_of = [&](auto const& work) { // GB/s; work returns the bytes
        auto const begin = std::chrono::steady_clock::now();
        std::size_t const bytes = work();
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return static_cast<double>(bytes) / 1e9 / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    double const speed = speed_of([&] {
        for (float pass = 0; pass <= 4; ++pass)
            for (auto& each : all) {
                auto const now = each.access(stream); // on the device, in this scope
                pass == 0 ? thrust::fill(on, now.data(), now.data() + now.size(), pass)
                          : thrust::replace(on, now.data(), now.data() + now.size(), pass - 1, pass);
            }
        return static_cast<std::size_t>(set.state().to_host_bytes + set.state().to_device_bytes);
    });
    std::size_t right = 0;
    for (auto& each : all) {
        auto const now = each.read(stream);
        right += static_cast<std::size_t>(thrust::count(on, now.data(), now.data() + now.size(), 4.0f));
    }
    std::printf("%zu of %zu numbers are right\n%s\n", right, parts * numbers, set.report().c_str());
    weir::pinned_vector<float> locked(pinned, stream, 2 * numbers);
    cudaStream_t other;
    weir::check_cuda(cudaStreamCreate(&other), "cudaStreamCreate");
    weir::device_vector<float> out(pool, stream, numbers), in(pool, other, numbers);
    double const link = speed_of([&] { // two copies at once
        return out.copy_to_async(locked.data()), in.assign(locked.data() + numbers, numbers), 2 * part_bytes;
    });
    std::printf("%.1f GB/s both ways, %.0f %% of what two copies at once reach\n", speed, 100 * speed / link);
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
