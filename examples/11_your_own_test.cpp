// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A test of your own needs no GPU: a kernel's stand-in runs, and a missing order is found, whether or not it would have bitten.
//
// Sources: this file. Libraries: the simulated device, also where there is a GPU.

#include <cstdio>
#include <exception>
#include <vector>
#include <weir/simulated_device.hpp>
#include <weir/weir.hpp>

using watched_pool = simulated_device::watched<weir::device_pool>;

void twice(int*, int) {} // in a file for nvcc this is '__global__ void twice(int* xs, int count)', launched by '<<<>>>'

// What is tested: one stream loads, another computes.
std::vector<int> load_and_double(watched_pool& memory, cudaStream_t load, cudaStream_t work, bool in_order) {
    weir::device_vector<int> xs(memory, load, std::vector<int>{1, 2, 3});
    if (in_order)
        weir::order_after(work, load);
    int* data = xs.data();
    int count = static_cast<int>(xs.size());
    void* arguments[] = {&data, &count};
    weir::check_cuda(cudaLaunchKernel(reinterpret_cast<void const*>(twice), 1, 32, arguments, 0, work), "cudaLaunchKernel");
    weir::order_after(load, work);
    return xs.to_host_sync<std::vector>();
}

void test(bool in_order) {
    simulated_device::world world{simulated_device::config{}.late()}; // a fresh machine, on which work runs as late as is legal
    cudaStream_t load = nullptr, work = nullptr;
    weir::check_cuda(cudaStreamCreateWithFlags(&load, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    weir::check_cuda(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    {
        watched_pool memory{weir::pool_options{}.name("test")};
        std::vector<int> const result = load_and_double(memory, load, work, in_order);
        std::printf("%s: %d %d %d\n", in_order ? "in order" : "not in order", result[0], result[1], result[2]);
    }
    weir::check_cuda(cudaStreamDestroy(load), "cudaStreamDestroy");
    weir::check_cuda(cudaStreamDestroy(work), "cudaStreamDestroy");
    for (simulated_device::report const& each : world.finish())
        std::printf("  found: %s\n", each.sentence.c_str());
}

int main() {
    try {
        simulated_device::on_launch(
            twice, [](int* xs, int count) { for (int at = 0; at < count; ++at) xs[at] *= 2; },
            [](int* xs, int count) { return simulated_device::uses{}.reads(xs, count).writes(xs, count); }, "twice");
        test(true);
        test(false);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
