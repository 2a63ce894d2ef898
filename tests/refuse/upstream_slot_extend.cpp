// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'extends', so it needs 'void* acquire(std::size_t bytes, std::size_t
// piece_bytes)' and 'bool extend(void* end, std::size_t bytes, std::size_t piece_bytes)'
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>

struct my_upstream {
    void* acquire(std::size_t) { return nullptr; }
    void* acquire(std::size_t, std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
    bool extends() const noexcept { return false; }
    bool move(void*, std::size_t, void*) noexcept { return false; }
#ifndef REJECT
    bool extend(void*, std::size_t, std::size_t) { return false; }
#endif
    void wait_before_unmapping() noexcept {}
    static constexpr std::size_t alignment = 256;
    static constexpr std::size_t granularity = 2 << 20;
    static constexpr weir::memory_space space = weir::memory_space::host;
};

void use() {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::immediate, weir::growth::paged<>> pool;
    pool.settle();
}
