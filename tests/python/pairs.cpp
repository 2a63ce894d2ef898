// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a pair of allocation and free take on the host, with the allocator that PyTorch has now?
//
// Built by gpu.py against PyTorch's headers.

#include <c10/cuda/CUDACachingAllocator.h>
#include <chrono>
#include <cstddef>

namespace {

template <class Pair>
double nanoseconds(std::size_t pairs, Pair const& pair) {
    auto const began = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < pairs; ++i)
        pair();
    std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - began;
    return took.count() / static_cast<double>(pairs);
}

} // namespace

extern "C" double pairs(std::size_t pairs, std::size_t bytes, cudaStream_t stream) {
    return nanoseconds(pairs, [&] {
        c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream));
    });
}
