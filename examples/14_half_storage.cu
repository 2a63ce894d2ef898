// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Floats that are stored as half, bfloat16 or 8 bits: half the memory and half the way, or a quarter, and less precision.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <thrust/transform.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/staging.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
#endif

struct squared {
    __host__ __device__ float operator()(float x) const { return x * x; }
};

// Sends numbers to the device as `Storage`, squares them there, and fetches them; prints how far off they are.
template <class Storage>
void square(char const* name, weir::device_pool& pool, weir::staging::pinned_ring& ring, std::vector<float> const& numbers,
            float scale) {
    weir::stream_ref const stream = cudaStreamPerThread;
    weir::stored_vector<float, Storage> xs(pool, stream, numbers.size(), scale);
    auto const before = ring.state().staged_bytes;
    weir::staging::copy_converted_to_device_async(ring, stream, xs.view(), numbers.data(), numbers.size());
    thrust::transform(weir::interop::thrust::par_nosync(pool, stream), xs.data(), xs.data() + xs.size(), xs.data(), squared{});
    std::vector<float> back(numbers.size());
    weir::staging::copy_converted_to_host_async(ring, stream, back.data(), xs.view(), back.size()).wait();
    double worst = 0;
    for (std::size_t i = 0; i != numbers.size(); ++i)
        worst = std::max(worst, std::fabs(static_cast<double>(back[i]) / (numbers[i] * numbers[i]) - 1));
    std::printf("%-9s %2zu MiB on the device, %2zu MiB over the link, at most %.3f %% off\n", name, xs.size_bytes() / weir::MiB,
                static_cast<std::size_t>(ring.state().staged_bytes - before) / weir::MiB, 100 * worst);
}

int main() try {
    weir::device_pool pool;
    weir::pinned_pool pinned;
    weir::staging::pinned_ring ring(pinned);
    std::vector<float> numbers(4 * weir::MiB); // from 1 to 20: their squares reach 400
    for (std::size_t i = 0; i != numbers.size(); ++i)
        numbers[i] = 1 + 19 * static_cast<float>(i) / static_cast<float>(numbers.size());
    square<float>("float", pool, ring, numbers, 1);
    square<__half>("half", pool, ring, numbers, 1);
    square<__nv_bfloat16>("bfloat16", pool, ring, numbers, 1);
    square<__nv_fp8_e4m3>("fp8 e4m3", pool, ring, numbers, 400.f / 448); // the largest number becomes the largest stored one
    square<__nv_fp8_e5m2>("fp8 e5m2", pool, ring, numbers, 1);
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
