// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a pair of allocation and free take on the host, in PyTorch's own allocator and in the plug-in's two functions?
//
// Built by gpu.py against PyTorch's headers. Both loops are here, so that both pay the same for being called.

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

extern "C" double own_pairs(std::size_t pairs, std::size_t bytes, cudaStream_t stream) {
    return nanoseconds(pairs, [&] {
        c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream));
    });
}

extern "C" double plugin_pairs(void* (*allocate)(std::size_t, int, cudaStream_t),
                               void (*deallocate)(void*, std::size_t, int, cudaStream_t), std::size_t pairs, std::size_t bytes,
                               int device, cudaStream_t stream) {
    return nanoseconds(pairs, [&] { deallocate(allocate(bytes, device, stream), bytes, device, stream); });
}
