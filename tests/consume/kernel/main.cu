// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A program with a kernel, compiled by nvcc and linked with the simulated device: it starts, and the launch is no success.
#include <weir/weir.hpp>

#include <cstdio>

__global__ void fill(int* xs, int value) {
    xs[threadIdx.x] = value;
}

int main() {
    weir::device_pool pool;
    cudaStream_t const stream = nullptr;
    weir::device_vector<int> xs(pool, stream, 32);
    fill<<<1, 32, 0, stream>>>(xs.data(), 7);
    std::printf("launched: %s\n", cudaGetErrorName(cudaGetLastError()));
}
