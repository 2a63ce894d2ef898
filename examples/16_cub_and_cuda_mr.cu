// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// CUB's storage comes from a pool, and so does what was written for CCCL's cuda::mr.
//
// Sources: this file; nvcc, or, without CUB, any C++ compiler (-x c++).
// Libraries: CCCL (headers), and the CUDA runtime or the simulated device.

#include <cstdio>
#include <exception>
#include <vector>
#include <weir/interop/cub.hpp>
#include <weir/interop/cuda_mr.hpp>
#include <weir/weir.hpp>
#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#endif

// Somebody else's function, which knows CCCL's resources and nothing of weir.
template <class Resource>
void use_scratch(Resource mr, cuda::stream_ref stream) {
    void* const scratch = mr.allocate(stream, 1 << 20, 16);
    weir::check_cuda(cudaMemsetAsync(scratch, 0, 1 << 20, stream.get()), "cudaMemsetAsync");
    mr.deallocate(stream, scratch, 1 << 20, 16);
}

// CUB's way: with a null pointer it says how many bytes it needs, with storage it sorts.
cudaError_t sort(void* storage, std::size_t& bytes, int const* from, int* to, int count, cudaStream_t stream) {
#ifdef __CUDACC__
    return cub::DeviceRadixSort::SortKeys(storage, bytes, from, to, count, 0, 32, stream);
#else // no kernels run on the simulated device; the numbers stay as they are, and they are sorted
    bytes = storage ? bytes : static_cast<std::size_t>(count) * sizeof(int);
    return storage ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream) : cudaSuccess;
#endif
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        weir::layer::statistics<weir::device_pool> pool{weir::pool_options{}.name("shared")};
        {
            weir::device_vector<int> const xs(pool, stream, std::vector<int>{1, 2, 3, 5, 8, 13});
            weir::device_vector<int> ys(pool, stream, xs.size());
            weir::interop::cub::run(pool, stream, [&](void* storage, std::size_t& bytes, cudaStream_t on) {
                return sort(storage, bytes, xs.data(), ys.data(), static_cast<int>(xs.size()), on);
            });
            std::printf("sorted: %d, ..., %d; blocks left: %zu\n", ys.element_sync(0), ys.element_sync(5), pool.live_blocks());

            use_scratch(weir::interop::cuda_mr::resource(pool), stream);
            std::printf("at the peak the pool had %zu KiB out\n", pool.peak_requested_bytes() / weir::KiB);
        }
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
