// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is computed on a chunk that streams through the device?
//
// 'launch_sum' adds the numbers of a chunk to a total, 'launch_scale' doubles them in place: both touch every byte once, so
// that the device takes much less time than the link. 'launch_halve' stores floats as __half, in memory that the device
// reaches. 'launch_sort' sorts keys, with storage from a pool. On the simulated device they do the same, by the host.
//
// not for:   the device's speed.

#include <cstddef>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <weir/resource/pool_ref.hpp>
#ifdef WEIR_BENCH_SIMULATED
#include <algorithm>
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace weir_bench {

#ifdef WEIR_BENCH_SIMULATED
inline cudaError_t launch_sum(cudaStream_t stream, float const* from, std::size_t count, double* total) {
    simulated_cuda::bytes const read{from, count * sizeof *from}, changed{total, sizeof *total};
    return simulated_cuda::launch(stream, {read, changed}, {changed}, [=] {
        auto const* const numbers = static_cast<float const*>(simulated_cuda::backing(from));
        auto& sum = *static_cast<double*>(simulated_cuda::backing(total));
        for (std::size_t i = 0; i != count; ++i)
            sum += static_cast<double>(numbers[i]);
    });
}
inline cudaError_t launch_scale(cudaStream_t stream, float* numbers, std::size_t count) {
    std::size_t const bytes = count * sizeof *numbers;
    return simulated_cuda::launch(stream, {{numbers, bytes}}, {{numbers, bytes}}, [=] {
        auto* const all = static_cast<float*>(simulated_cuda::backing(numbers));
        for (std::size_t i = 0; i != count; ++i)
            all[i] *= 2;
    });
}
inline cudaError_t launch_halve(cudaStream_t stream, __half* to, float const* from, std::size_t count, unsigned) {
    return simulated_cuda::launch(stream, {{from, count * sizeof *from}}, {{to, count * sizeof *to}}, [=] {
        auto const* const numbers = static_cast<float const*>(simulated_cuda::backing(from));
        auto* const halves = static_cast<__half*>(simulated_cuda::backing(to));
        for (std::size_t i = 0; i != count; ++i)
            halves[i] = static_cast<__half>(numbers[i]);
    });
}
inline cudaError_t launch_sort(cudaStream_t stream, unsigned* keys, std::size_t count,
                               weir::pool_ref<weir::memory_space::device>) {
    std::size_t const bytes = count * sizeof *keys;
    return simulated_cuda::launch(stream, {{keys, bytes}}, {{keys, bytes}}, [=] {
        auto* const all = static_cast<unsigned*>(simulated_cuda::backing(keys));
        std::sort(all, all + count);
    });
}
#else
cudaError_t launch_halve(cudaStream_t stream, __half* to, float const* from, std::size_t count, unsigned blocks);
cudaError_t launch_sum(cudaStream_t stream, float const* from, std::size_t count, double* total);
cudaError_t launch_scale(cudaStream_t stream, float* numbers, std::size_t count);
cudaError_t launch_sort(cudaStream_t stream, unsigned* keys, std::size_t count,
                        weir::pool_ref<weir::memory_space::device> pool);
#endif

} // namespace weir_bench
