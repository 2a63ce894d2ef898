// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Two streams hand memory over: one loads, the other works, and nobody waits on the host.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>
#include <weir/weir.hpp>

constexpr std::size_t batch_size = 1000;

void hand_over(cudaStream_t load, cudaStream_t work) {
    weir::device_pool pool{weir::pool_options{}.name("batches")};
    weir::device_vector<int> results(pool, work);

    for (int batch = 0; batch < 5; ++batch) {
        std::vector<int> const host(batch_size, batch);
        weir::device_vector<int> input(pool, load, host); // 1. upload on the loading stream

        input.used_on(work); // 2. said once, whenever it is: the free waits for what 'work' does until then, on the device

        weir::order_after(work, load);              // 3. the working stream comes after the upload...
        results.append(input.data(), input.size()); // ...and uses the batch (a kernel would stand here)
    } // 4. freed on 'load'; the next batch has these bytes only when 'work' is through with them

    std::vector<int> const all = results.to_host_sync<std::vector>();
    for (std::size_t batch = 0; batch < 5; ++batch)
        std::printf("batch %zu arrived with the sum %d\n", batch,
                    std::accumulate(&all[batch * batch_size], &all[batch * batch_size] + batch_size, 0));
    std::printf("held from the driver: %zu MiB\n", pool.reserved_bytes() / weir::MiB);
}

int main() {
    try {
        cudaStream_t load = nullptr, work = nullptr;
        weir::check_cuda(cudaStreamCreate(&load), "cudaStreamCreate");
        weir::check_cuda(cudaStreamCreate(&work), "cudaStreamCreate");
        hand_over(load, work);
        weir::check_cuda(cudaStreamDestroy(load), "cudaStreamDestroy");
        weir::check_cuda(cudaStreamDestroy(work), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
