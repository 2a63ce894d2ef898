// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'most_bytes', which must be 'std::size_t most_bytes() const noexcept', what
// it can ever have out at most; SIZE_MAX where that is not known
#include <cstdint>
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>

struct my_upstream {
    void* acquire(std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
#ifdef REJECT
    std::size_t most_bytes() const { return SIZE_MAX; } // may throw
#else
    std::size_t most_bytes() const noexcept { return SIZE_MAX; }
#endif
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::host;
};

void use() {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::immediate> pool;
    pool.settle();
}
