// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool of weir's stand behind a session?

#include "counted_weir.hpp"

namespace replay {

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
    ledger* shared_book() noexcept override { return &book_; }
    void settle() override { pool_.settle(); }
    void trim() override { static_cast<void>(pool_.trim()); }

private:
    ledger book_; // outlives the pool, which gives its chunks back through it
    counted_driver driver_{book_};
    counted_pool<Pool> pool_;
};

} // namespace replay
