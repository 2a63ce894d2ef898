// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the growth slot needs 'static std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes)';
// weir's own policies are in <weir/growth/...>, the default one in <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#ifndef REJECT
#include <weir/growth/geometric.hpp>
#endif
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/host.hpp>

void use() {
    weir::pool<weir::upstream::host, weir::placement::best_fit<>, weir::reuse::immediate> pool;
    pool.deallocate_sync(pool.allocate_sync(1), 1);
}
