// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Thrust sorts on a pool: data and temporary storage come from it, on a stream.
//
// Sources: this file; nvcc, or with THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP any C++ compiler (-x c++).
// Libraries: CCCL (headers), and the CUDA runtime or the simulated device.

#include <cstdio>
#include <exception>
#include <random>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

void sort_on_a_pool(cudaStream_t stream) {
    weir::layer::statistics<weir::device_pool> pool{weir::pool_options{}.name("sort")};

    std::mt19937 random(7);
    std::vector<unsigned> numbers(1 << 20);
    for (unsigned& number : numbers)
        number = static_cast<unsigned>(random() % 1000000);

    weir::device_vector<unsigned> xs(pool, stream, numbers);
    thrust::sort(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size());
    auto const sum = thrust::reduce(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size(), 0ull);

    std::printf("sorted %zu numbers: %u, ..., %u, ..., %u\n", xs.size(), xs.element_sync(0),
                xs.element_sync(xs.size() / 2), xs.element_sync(xs.size() - 1));
    std::printf("their sum: %llu\n", sum);
    std::printf("left in the pool: %zu block of %zu MiB; with what Thrust borrowed it was %zu MiB\n", pool.live_blocks(),
                pool.requested_bytes() / weir::MiB, pool.peak_requested_bytes() / weir::MiB);
}

int main() {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::make_device_memory_visible(true); // there, Thrust's device is the host
#endif
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        sort_on_a_pool(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
