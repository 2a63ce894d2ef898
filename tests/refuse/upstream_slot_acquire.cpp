// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot needs 'void* acquire(std::size_t bytes)', null when there is no more
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>

struct my_upstream {
#ifdef REJECT
    int acquire(std::size_t) { return 0; }
#else
    void* acquire(std::size_t) { return nullptr; }
#endif
    void release(void*, std::size_t) noexcept {}
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::host;
};

void use() {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::immediate> pool;
    pool.settle();
}
