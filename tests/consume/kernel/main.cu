// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A program with two kernels, compiled by nvcc and linked with the simulated device: one has a stand-in, and its launches are
// judged; the launch of the other is no success.
#include <cstdio>
#include <weir/simulated_device.hpp>
#include <weir/weir.hpp>

__global__ void fill(int* xs, int value) {
    xs[threadIdx.x] = value;
}

template <class T>
__global__ void scale(T* xs, T by, int count) {
    if (threadIdx.x < count)
        xs[threadIdx.x] *= by;
}

int main() {
    simulated_device::on_launch(
        scale<int>,
        [](int* xs, int by, int count) {
            for (int at = 0; at < count; ++at)
                xs[at] *= by;
        },
        [](int* xs, int, int count) { return simulated_device::uses{}.reads(xs, count).writes(xs, count); });
    simulated_device::watched<weir::device_pool> pool;
    cudaStream_t const stream = nullptr;
    weir::device_vector<int> xs(pool, stream, 32);
    cudaMemsetAsync(xs.data(), 1, 32 * sizeof(int), stream);
    scale<<<1, 32, 0, stream>>>(xs.data(), 2, 32);
    std::printf("scaled: %s, %x\n", cudaGetErrorName(cudaGetLastError()), xs.element_sync(31));
    scale<<<1, 33, 0, stream>>>(xs.data(), 2, 33);
    fill<<<1, 32, 0, stream>>>(xs.data(), 7);
    std::printf("launched: %s\n", cudaGetErrorName(cudaGetLastError()));
}
