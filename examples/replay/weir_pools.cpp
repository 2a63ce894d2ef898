// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// weir's own pools: the recipe, the one composed next door, and CUDA's pool behind weir's interface.

#include "counted_weir.hpp"
#include "counted_session.hpp"

namespace replay {
namespace {

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
