// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot needs 'static constexpr weir::memory_space space'
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>

struct my_upstream {
    void* acquire(std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
    static constexpr std::size_t alignment = 256;
#ifdef REJECT
    weir::memory_space space = weir::memory_space::host; // of each object
#else
    static constexpr weir::memory_space space = weir::memory_space::host;
#endif
};

void use() {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::immediate> pool;
    pool.settle();
}
