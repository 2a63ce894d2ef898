// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One ring of pinned memory, many threads: ordinary host memory goes to the device and comes back through it.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>
#include <weir/staging.hpp>
#include <weir/weir.hpp>

constexpr std::size_t rows = 4, numbers = 8 * weir::MiB / sizeof(float);

// Sends a row to the device and fetches it again; answers whether it is the same.
bool round_trip(weir::staging::pinned_ring& ring, weir::device_pool& pool, float value) {
    cudaStream_t stream = nullptr;
    weir::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    std::vector<float> row(numbers, value), back(numbers);
    {
        weir::device_vector<float> there(pool, stream, numbers);
        weir::staging::copy_to_device_async(ring, stream, there.data(), row.data(), there.size_bytes());
        row.assign(numbers, 0); // it was read: its memory may serve for the next one
        weir::staging::copy_to_host_sync(ring, stream, back.data(), there.data(), there.size_bytes());
    }
    weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return back == std::vector<float>(numbers, value);
}

int main() {
    try {
        weir::pinned_pool pinned;
        weir::device_pool pool;
        weir::staging::copy_threads helpers(2); // shared by all who copy much at a time
        weir::staging::pinned_ring ring(pinned, weir::staging::pinned_ring_options{}.threads(helpers).name("shared"));
        bool same[rows] = {};
        auto const begin = std::chrono::steady_clock::now();
        std::vector<std::thread> producers;
        for (std::size_t i = 0; i != rows; ++i)
            producers.emplace_back([&, i] {
                try {
                    same[i] = round_trip(ring, pool, static_cast<float>(i + 1));
                } catch (std::exception const& error) {
                    std::fprintf(stderr, "%s\n", error.what());
                }
            });
        for (std::thread& each : producers)
            each.join();
        std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - begin;
        std::printf("%d of %zu rows came back as they were, through %zu MiB of pinned memory\n",
                    same[0] + same[1] + same[2] + same[3], rows, pinned.in_use_bytes() / weir::MiB);
        std::printf("%s\n", ring.report().c_str());
        std::printf("%.1f GB/s\n", 2.0 * rows * numbers * sizeof(float) / seconds.count() / 1e9);
    } catch (std::exception const& error) {
        return std::fprintf(stderr, "%s\n", error.what()), 1;
    }
}
