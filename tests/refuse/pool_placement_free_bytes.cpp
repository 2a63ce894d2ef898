// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the placement slot needs 'std::size_t free_bytes() const'
#include <weir/growth/geometric.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/host.hpp>

struct my_placement {
    weir::base::range take(std::size_t, std::size_t) { return {}; }
    void give(weir::base::range) {}
    void add(weir::base::range) {}
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) { return bytes; }
    static constexpr std::size_t needs(std::size_t bytes, std::size_t, std::size_t) { return bytes; }
#ifdef REJECT
    std::size_t free_bytes() { return 0; } // not const
#else
    std::size_t free_bytes() const { return 0; }
#endif
};

void use() {
    weir::pool<weir::upstream::host, my_placement, weir::reuse::immediate> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
