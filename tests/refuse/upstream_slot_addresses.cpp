// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the upstream slot's upstream has 'addresses_behind', so it needs 'std::size_t addresses_behind(void const* end)
// const noexcept' and 'bool out_of_addresses() const noexcept'
#include <cstdint>
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>

struct my_upstream {
    void* acquire(std::size_t) { return nullptr; }
    void release(void*, std::size_t) noexcept {}
    std::size_t addresses_behind(void const*) const noexcept { return 0; }
#ifndef REJECT
    bool out_of_addresses() const noexcept { return false; }
#endif
    static constexpr std::size_t alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::host;
};

void use() {
    weir::pool<my_upstream, weir::placement::best_fit<>, weir::reuse::immediate> pool;
    pool.settle();
}
