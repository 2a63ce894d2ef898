// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// No pool at all: a cudaMalloc and a cudaFree for every block.

#include "contender.hpp"
#include "counted_malloc.hpp"
#include <weir/runtime/check.hpp>

namespace replay {
namespace {

class cuda_malloc final : public session_of<cuda_malloc> {
public:
    explicit cuda_malloc(std::size_t limit_bytes) : book_(limit_bytes) {}

    void* allocate(cudaStream_t, std::size_t bytes) {
        void* p = nullptr;
        return weir::runtime::out_of_room(counted_malloc(book_, &p, bytes), "cudaMalloc") ? nullptr : p;
    }
    void deallocate(cudaStream_t, void* p, std::size_t bytes) noexcept {
        static_cast<void>(counted_free(book_, p, bytes));
    }

    void order_free(cudaStream_t, cudaStream_t) override {} // cudaFree waits for the device

    void note_allocate(void*, std::size_t bytes) noexcept { handed_out_bytes_ += ledger::taken_by(bytes); }
    void note_deallocate(void*, std::size_t bytes) noexcept { handed_out_bytes_ -= ledger::taken_by(bytes); }

    std::size_t handed_out_bytes() const override { return handed_out_bytes_; }
    std::size_t reserved_bytes() const override { return book_.reserved_bytes(); }
    ledger const& book() const override { return book_; }

private:
    ledger book_;
    std::size_t handed_out_bytes_ = 0;
};

} // namespace

std::unique_ptr<session> open_cuda_malloc(std::size_t limit_bytes) {
    return std::make_unique<cuda_malloc>(limit_bytes);
}

} // namespace replay
