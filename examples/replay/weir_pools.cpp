// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// weir's own pools: the recipe, the one composed next door, and CUDA's pool behind weir's interface.
//
// Their calls about memory, and those that wait, are turned to counted ones by the preprocessor. So that no other
// file's weir is mixed up with this one, its inline namespace has another name here.

#define v0 replay_counted
#include "contender.hpp"
#include "counted_driver.hpp"

#define cudaMalloc(...) ::replay::counted_call(::replay::waiting_memory_call, cudaMalloc(__VA_ARGS__))
#define cudaMallocManaged(...) ::replay::counted_call(::replay::waiting_memory_call, cudaMallocManaged(__VA_ARGS__))
#define cudaFree(...) ::replay::counted_call(::replay::waiting_memory_call, cudaFree(__VA_ARGS__))
#define cudaHostAlloc(...) ::replay::counted_call(::replay::waiting_memory_call, cudaHostAlloc(__VA_ARGS__))
#define cudaFreeHost(...) ::replay::counted_call(::replay::waiting_memory_call, cudaFreeHost(__VA_ARGS__))
#define cudaHostRegister(...) ::replay::counted_call(::replay::waiting_memory_call, cudaHostRegister(__VA_ARGS__))
#define cudaHostUnregister(...) ::replay::counted_call(::replay::waiting_memory_call, cudaHostUnregister(__VA_ARGS__))
#define cudaDeviceSynchronize(...) ::replay::counted_call(::replay::wait_alone, cudaDeviceSynchronize(__VA_ARGS__))
#define cudaStreamSynchronize(...) ::replay::counted_call(::replay::wait_alone, cudaStreamSynchronize(__VA_ARGS__))
#define cudaEventSynchronize(...) ::replay::counted_call(::replay::wait_alone, cudaEventSynchronize(__VA_ARGS__))
#define cudaGetDriverEntryPointByVersion(name, function, version, flags, result)                             \
    ::replay::counted_entry_point(name, function, version, flags, result)
#include "composed_pool.hpp"
#include "counted_upstream.hpp"
#include <weir/weir.hpp>
#undef v0
#undef cudaMalloc
#undef cudaMallocManaged
#undef cudaFree
#undef cudaHostAlloc
#undef cudaFreeHost
#undef cudaHostRegister
#undef cudaHostUnregister
#undef cudaDeviceSynchronize
#undef cudaStreamSynchronize
#undef cudaEventSynchronize
#undef cudaGetDriverEntryPointByVersion

namespace replay {
namespace {

/// Any pool of weir's that stands on an upstream.
template <class Pool>
class pool_over_upstream final : public session_of<pool_over_upstream<Pool>> {
public:
    explicit pool_over_upstream(weir::pool_options const& options)
        : pool_(typename count_upstream<Pool>::upstream(book_), options) {}

    void* allocate(cudaStream_t stream, std::size_t bytes) { return pool_.try_allocate(stream, bytes); }
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes) noexcept {
        pool_.deallocate(stream, p, bytes);
    }

    std::size_t handed_out_bytes() const override { return pool_.in_use_bytes(); }
    std::size_t reserved_bytes() const override { return book_.reserved_bytes(); }
    ledger const& book() const override { return book_; }

private:
    ledger book_; // outlives the pool, which gives its chunks back through it
    counted_driver driver_{book_};
    counted_pool<Pool> pool_;
};

/// cudaMallocFromPoolAsync, where CUDA says what its pool holds.
class driver_pool final : public session_of<driver_pool> {
public:
    explicit driver_pool(weir::driver_pool_options const& options) : pool_(options) {}

    void* allocate(cudaStream_t stream, std::size_t bytes) { return pool_.try_allocate(stream, bytes); }
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes) noexcept {
        pool_.deallocate(stream, p, bytes);
    }

    std::size_t handed_out_bytes() const override { return pool_.in_use_bytes(); }
    std::size_t reserved_bytes() const override { return pool_.reserved_bytes(); }
    ledger const& book() const override { return book_; }

private:
    ledger book_; // of calls alone
    counted_driver driver_{book_};
    weir::driver_pool pool_;
};

} // namespace

std::unique_ptr<session> open_device_pool(std::size_t limit_bytes) {
    return std::make_unique<pool_over_upstream<weir::device_pool>>(
        weir::pool_options{}.limit(limit_bytes).name("device_pool"));
}

std::unique_ptr<session> open_compact_device_pool(std::size_t limit_bytes) {
    return std::make_unique<pool_over_upstream<weir::compact_device_pool>>(
        weir::pool_options{}.limit(limit_bytes).name("compact_device_pool"));
}

std::unique_ptr<session> open_promised_device_pool(std::size_t limit_bytes) {
    return std::make_unique<pool_over_upstream<weir::promised_device_pool>>(
        weir::pool_options{}.limit(limit_bytes).name("promised_device_pool"));
}

std::unique_ptr<session> open_composed_pool(std::size_t limit_bytes) {
    return std::make_unique<pool_over_upstream<composed_pool>>(
        weir::pool_options{}.limit(limit_bytes).name("composed_pool"));
}

std::unique_ptr<session> open_driver_pool(std::size_t limit_bytes) {
    weir::driver_pool_options options;
    options.name("driver_pool");
    if (limit_bytes != no_limit)
        options.limit(limit_bytes);
    return std::make_unique<driver_pool>(options);
}

} // namespace replay
