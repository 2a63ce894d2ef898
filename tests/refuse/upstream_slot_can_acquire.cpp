// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'can_acquire', which must be 'bool can_acquire(std::size_t bytes) const noexcept'
#include <weir/weir.hpp>

struct memory {
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::host;
    void* acquire(std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
    weir::text refusal(std::size_t) const { return "none"; }
#ifdef REJECT
    bool can_acquire(std::size_t) const { return true; } // may throw
#else
    bool can_acquire(std::size_t) const noexcept { return true; }
#endif
};

void use(weir::pool<memory, weir::placement::best_fit<>, weir::reuse::immediate>& pool) {
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
