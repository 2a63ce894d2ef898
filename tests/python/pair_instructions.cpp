// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How many instructions does a pair of allocation and free take?
//
// usage: pair_instructions PAIRS BYTES [PLUG-IN VERSION], under 'valgrind --tool=callgrind --toggle-collect=counted_pairs'; by
// pair_instructions.py. Without a plug-in it is PyTorch's own allocator.

#include <c10/cuda/CUDACachingAllocator.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <weir/simulated_device.hpp>

extern "C" [[gnu::noinline]] void counted_pairs(std::size_t pairs, std::size_t bytes, cudaStream_t stream) {
    for (std::size_t i = 0; i < pairs; ++i)
        c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream));
}

int main(int count, char** words) {
    simulated_device::config small; // valgrind has few addresses to give
    small.memory_bytes = small.pinned_bytes = std::size_t(1) << 30;
    small.address_bytes = std::size_t(64) << 30;
    simulated_device::reset(small);
    if (count > 4) {
        void* const plugin = dlopen(words[3], RTLD_NOW);
        auto const install = plugin ? reinterpret_cast<int (*)(char const*)>(dlsym(plugin, "weir_install")) : nullptr;
        if (!install || install(words[4]) != 0)
            return std::fprintf(stderr, "the plug-in was not installed: %s\n", plugin ? "" : dlerror()), 1;
    }
    c10::cuda::CUDACachingAllocator::get()->init(1);
    std::size_t const pairs = std::strtoul(words[1], nullptr, 10), bytes = std::strtoul(words[2], nullptr, 10);
    void* const other = c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, nullptr); // the pool is never empty
    for (std::size_t i = 0; i < 100; ++i)
        c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, nullptr));
    counted_pairs(pairs, bytes, nullptr);
    c10::cuda::CUDACachingAllocator::raw_delete(other);
    std::_Exit(0);
}
