// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Thrust's pool, thrust::mr::disjoint_unsynchronized_pool_resource, over a counted cudaMalloc.
//
// Options as they come, except that blocks are aligned to 256 bytes like everybody's. The pool takes no
// stream: it hands a freed block to the next who asks, also while work on another stream still uses it.

#include "contender.hpp"
#include "counted_malloc.hpp"
#include <new>
#include <thrust/mr/disjoint_pool.h>
#include <thrust/mr/memory_resource.h>
#include <thrust/mr/new.h>
#include <unordered_map>
#include <weir/runtime/check.hpp>

namespace replay {
namespace {

constexpr std::size_t alignment = 256;

/// cudaMalloc as a resource of Thrust's.
class device_memory final : public thrust::mr::memory_resource<void*> {
public:
    explicit device_memory(std::size_t limit_bytes) : book(limit_bytes) {}

    void* do_allocate(std::size_t bytes, std::size_t) override {
        void* p = nullptr;
        if (weir::runtime::out_of_room(counted_malloc(book, &p, bytes), "cudaMalloc"))
            throw std::bad_alloc();
        bytes_at_[p] = bytes;
        return p;
    }

    void do_deallocate(void* p, std::size_t bytes, std::size_t) override {
        bytes_at_.erase(p);
        static_cast<void>(counted_free(book, p, bytes));
    }

    std::size_t bytes_at(void* p) const noexcept {
        auto const found = bytes_at_.find(p);
        return found == bytes_at_.end() ? 0 : found->second;
    }

    ledger book;

private:
    std::unordered_map<void*, std::size_t> bytes_at_;
};

class thrust_pool final : public session_of<thrust_pool> {
    using resource =
        thrust::mr::disjoint_unsynchronized_pool_resource<device_memory, thrust::mr::new_delete_resource>;

public:
    explicit thrust_pool(std::size_t limit_bytes)
        : memory_(limit_bytes), options_(options()), pool_(&memory_, &host_memory_, options_) {}

    void* allocate(cudaStream_t, std::size_t bytes) {
        try {
            return pool_.do_allocate(bytes, alignment);
        } catch (std::bad_alloc const&) {
            return nullptr;
        }
    }
    void deallocate(cudaStream_t, void* p, std::size_t bytes) noexcept {
        pool_.do_deallocate(p, bytes, alignment);
    }

    void order_free(cudaStream_t, cudaStream_t) override {} // nothing that could be ordered would help

    void note_allocate(void* p, std::size_t bytes) { handed_out_bytes_ += set_aside(p, bytes); }
    void note_deallocate(void* p, std::size_t bytes) noexcept { handed_out_bytes_ -= set_aside(p, bytes); }

    std::size_t handed_out_bytes() const override { return handed_out_bytes_; }
    std::size_t reserved_bytes() const override { return memory_.book.reserved_bytes(); }
    ledger const& book() const override { return memory_.book; }

private:
    static thrust::mr::pool_options options() {
        thrust::mr::pool_options chosen = resource::get_default_options();
        chosen.alignment = alignment;
        chosen.smallest_block_size = alignment;
        return chosen;
    }

    /// What Thrust keeps for a block: a power of two, or, of a large one, the whole of what it got from
    /// cudaMalloc.
    std::size_t set_aside(void* p, std::size_t bytes) const noexcept {
        if (bytes > options_.largest_block_size)
            return memory_.bytes_at(p);
        return weir::base::power_of_two_above(bytes < alignment ? alignment : bytes);
    }

    device_memory memory_;
    thrust::mr::new_delete_resource host_memory_;
    thrust::mr::pool_options options_;
    resource pool_;
    std::size_t handed_out_bytes_ = 0;
};

} // namespace

std::unique_ptr<session> open_thrust(std::size_t limit_bytes) {
    return std::make_unique<thrust_pool>(limit_bytes);
}

} // namespace replay
