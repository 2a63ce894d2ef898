// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do CUDA itself, malloc and no pool at all cost?
//
// 'harness' hands the same bytes out for ever: what it takes is what a bench takes by itself, and is in every
// other pool's figure too. cudaMallocFromPoolAsync, with a pool of its own that never gives memory back, is
// the peer to beat. malloc is for scale: it needs to know nothing of streams.
//
// not for:   CUB and Thrust: see their own files.

#include "../abilities.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <new>
#include <weir/runtime/check.hpp>

namespace weir_bench {

/// No pool: one region of 32 MiB, handed out every time.
class harness {
public:
    static constexpr char const* name = "(harness)";
#ifdef WEIR_BENCH_SIMULATED // which sees that two streams write the same bytes unordered
    static constexpr unsigned able = many_threads | bulk | millions | side_by_side | per_thread_streams;
#else
    static constexpr unsigned able = many_threads | any_stream | bulk | millions | side_by_side | per_thread_streams;
#endif
    static constexpr std::size_t most_bytes = std::size_t{32} << 20;

    harness() {
        weir::check_cuda(cudaMalloc(&region_, most_bytes), "cudaMalloc");
    }
    harness(harness const&) = delete;
    harness& operator=(harness const&) = delete;
    ~harness() {
        static_cast<void>(cudaFree(region_));
    }

    [[gnu::noinline]] void* allocate(cudaStream_t, std::size_t) {
        return region_;
    }
    [[gnu::noinline]] void deallocate(cudaStream_t, void*, std::size_t) {
        asm volatile("");
    }

private:
    void* region_ = nullptr;
};

/// cudaMalloc and cudaFree.
class cuda_malloc {
public:
    static constexpr char const* name = "cudaMalloc";
    static constexpr unsigned able = many_threads | on_device | in_flight | per_thread_streams; // it waits

    void* allocate(cudaStream_t, std::size_t bytes) {
        void* p = nullptr;
        weir::check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        return p;
    }
    void deallocate(cudaStream_t, void* p, std::size_t) { weir::check_cuda(cudaFree(p), "cudaFree"); }
};

/// cudaMallocFromPoolAsync and cudaFreeAsync on a pool of its own with the largest release threshold.
class cuda_malloc_async {
public:
    static constexpr char const* name = "cudaMallocAsync";
    static constexpr unsigned able = everything;

    cuda_malloc_async() {
        cudaMemPoolProps props{};
        props.allocType = cudaMemAllocationTypePinned;
        props.location.type = cudaMemLocationTypeDevice;
        weir::check_cuda(cudaGetDevice(&props.location.id), "cudaGetDevice");
        weir::check_cuda(cudaMemPoolCreate(&pool_, &props), "cudaMemPoolCreate");
        std::uint64_t threshold = UINT64_MAX;
        weir::check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold),
                    "cudaMemPoolSetAttribute");
    }
    cuda_malloc_async(cuda_malloc_async const&) = delete;
    cuda_malloc_async& operator=(cuda_malloc_async const&) = delete;
    ~cuda_malloc_async() { static_cast<void>(cudaMemPoolDestroy(pool_)); }

    void* allocate(cudaStream_t stream, std::size_t bytes) {
        void* p = nullptr;
        weir::check_cuda(cudaMallocFromPoolAsync(&p, bytes, pool_, stream), "cudaMallocFromPoolAsync");
        return p;
    }
    void deallocate(cudaStream_t stream, void* p, std::size_t) {
        weir::check_cuda(cudaFreeAsync(p, stream), "cudaFreeAsync");
    }

private:
    cudaMemPool_t pool_ = nullptr;
};

/// The host's malloc and free.
class host_malloc {
public:
    static constexpr char const* name = "malloc";
    static constexpr unsigned able = many_threads | bulk | per_thread_streams;

    void* allocate(cudaStream_t, std::size_t bytes) {
        void* const p = std::malloc(bytes);
        if (!p)
            throw std::bad_alloc();
        return p;
    }
    void deallocate(cudaStream_t, void* p, std::size_t) { std::free(p); }
};

} // namespace weir_bench
