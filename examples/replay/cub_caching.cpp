// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cub::CachingDeviceAllocator with its default options.
//
// It has no upstream to wrap: its calls of cudaMalloc and cudaFree are turned to counted ones by the
// preprocessor. So that no other file sees another CachingDeviceAllocator, this one names CUB's namespace
// anew and is the only one that includes it.

#define CUB_WRAPPED_NAMESPACE replay_counted
#include "contender.hpp"
#include "counted_malloc.hpp"
#include <cuda_runtime.h>
#include <unordered_map>
#include <weir/runtime/check.hpp>

namespace replay {
namespace {

/// cudaMalloc and cudaFree as CUB sees them.
class counted_driver {
public:
    explicit counted_driver(std::size_t limit_bytes) : book(limit_bytes) { current = this; }
    ~counted_driver() { current = nullptr; }

    cudaError_t malloc(void** p, std::size_t bytes) {
        last_error = counted_malloc(book, p, bytes);
        if (*p)
            bytes_of_[*p] = bytes;
        return last_error;
    }

    cudaError_t free(void* p) {
        auto const found = bytes_of_.find(p);
        std::size_t const bytes = found == bytes_of_.end() ? 0 : found->second;
        if (found != bytes_of_.end())
            bytes_of_.erase(found);
        return counted_free(book, p, bytes);
    }

    ledger book;
    cudaError_t last_error = cudaSuccess; // of cudaMalloc
    static counted_driver* current;

private:
    std::unordered_map<void*, std::size_t> bytes_of_;
};

counted_driver* counted_driver::current = nullptr;

} // namespace
} // namespace replay

#define cudaMalloc(p, bytes) ::replay::counted_driver::current->malloc(p, bytes)
#define cudaFree(p) ::replay::counted_driver::current->free(p)
#include <cub/util_allocator.cuh>
#undef cudaMalloc
#undef cudaFree

namespace replay {
namespace {

class cub_caching final : public session_of<cub_caching> {
public:
    explicit cub_caching(std::size_t limit_bytes) : driver_(limit_bytes) {
        weir::check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    }

    void* allocate(cudaStream_t stream, std::size_t bytes) {
        void* p = nullptr;
        cudaError_t const error = allocator_.DeviceAllocate(device_, &p, bytes, stream);
        if (weir::runtime::out_of_room(error, "cub::CachingDeviceAllocator::DeviceAllocate"))
            return nullptr;
        if (!p) {
            // CUB goes on after a cudaMalloc that failed for another reason than memory, and notes a null block.
            static_cast<void>(allocator_.DeviceFree(device_, nullptr));
            weir::check_cuda(driver_.last_error, "cudaMalloc");
        }
        return p;
    }
    void deallocate(cudaStream_t, void* p, std::size_t) noexcept {
        static_cast<void>(allocator_.DeviceFree(device_, p));
    }

    // CUB asks for no stream at a free: the block is the allocating stream's again at once.
    void order_free(cudaStream_t freeing, cudaStream_t allocating) override { put_after(allocating, freeing); }

    std::size_t handed_out_bytes() const override {
        auto const found = allocator_.cached_bytes.find(device_);
        return found == allocator_.cached_bytes.end() ? 0 : found->second.live;
    }
    std::size_t reserved_bytes() const override { return driver_.book.reserved_bytes(); }
    ledger const& book() const override { return driver_.book; }

private:
    counted_driver driver_; // outlives the allocator, which frees its cache through it
    int device_ = 0;
    ::replay_counted::cub::CachingDeviceAllocator allocator_;
};

} // namespace

std::unique_ptr<session> open_cub(std::size_t limit_bytes) {
    return std::make_unique<cub_caching>(limit_bytes);
}

} // namespace replay
