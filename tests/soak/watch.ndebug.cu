// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "watch.hpp"

#include <weir/runtime/check.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <algorithm>
#include <atomic>
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace soak {

using weir::check_cuda;

#ifdef WEIR_SIMULATED_CUDA

namespace {

// The simulated device has run all that counts here before a world ends.
std::atomic<unsigned long long> wrong{0};

std::uint32_t* words(void const* p) {
    return static_cast<std::uint32_t*>(simulated_cuda::backing(p));
}

} // namespace

watch::watch() {
    wrong = 0;
}
watch::~watch() = default;

void watch::fill(cudaStream_t stream, void* p, std::size_t bytes, std::uint32_t tag, unsigned) {
    weir::check_cuda(simulated_cuda::launch(stream, {}, {{p, bytes}}, [=] { std::fill_n(words(p), bytes / 4, tag); }), "a launch");
}

void watch::check(cudaStream_t stream, void const* p, std::size_t bytes, std::uint32_t tag, unsigned) {
    auto const look = [=] {
        std::uint32_t const* const begin = words(p);
        wrong += bytes / 4 - static_cast<std::size_t>(std::count(begin, begin + bytes / 4, tag));
    };
    weir::check_cuda(simulated_cuda::launch(stream, {{p, bytes}}, {}, look), "a launch");
}

unsigned long long watch::wrong_words() const {
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return wrong;
}

#else

namespace {

constexpr unsigned threads = 256;
constexpr std::size_t most_blocks = 16; // small grids, so that many kernels are under way at once

unsigned blocks_for(std::size_t words) {
    std::size_t const wanted = (words + threads - 1) / threads;
    return static_cast<unsigned>(wanted < most_blocks ? wanted : most_blocks);
}

__device__ void spin(unsigned cycles) {
    long long const start = clock64();
    while (clock64() - start < cycles) {
    }
}

__global__ void fill_words(std::uint32_t* p, std::size_t words, std::uint32_t tag, unsigned cycles) {
    spin(cycles);
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += std::size_t{gridDim.x} * blockDim.x)
        p[i] = tag;
}

__global__ void check_words(std::uint32_t const* p, std::size_t words, std::uint32_t tag, unsigned cycles,
                            unsigned long long* wrong) {
    spin(cycles);
    unsigned long long found = 0;
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += std::size_t{gridDim.x} * blockDim.x)
        found += p[i] != tag;
    if (found != 0)
        atomicAdd(wrong, found);
}

} // namespace

watch::watch() {
    weir::check_cuda(cudaMalloc(&wrong_, sizeof *wrong_), "cudaMalloc");
    weir::check_cuda(cudaMemset(wrong_, 0, sizeof *wrong_), "cudaMemset");
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

watch::~watch() {
    static_cast<void>(cudaFree(wrong_));
}

void watch::fill(cudaStream_t stream, void* p, std::size_t bytes, std::uint32_t tag, unsigned cycles) {
    fill_words<<<blocks_for(bytes / 4), threads, 0, stream>>>(static_cast<std::uint32_t*>(p), bytes / 4, tag, cycles);
    weir::check_cuda(cudaGetLastError(), "a launch");
}

void watch::check(cudaStream_t stream, void const* p, std::size_t bytes, std::uint32_t tag, unsigned cycles) {
    check_words<<<blocks_for(bytes / 4), threads, 0, stream>>>(static_cast<std::uint32_t const*>(p), bytes / 4, tag, cycles,
                                                               wrong_);
    weir::check_cuda(cudaGetLastError(), "a launch");
}

unsigned long long watch::wrong_words() const {
    unsigned long long wrong = 0;
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    weir::check_cuda(cudaMemcpy(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return wrong;
}

#endif

} // namespace soak
