// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: an any_pool promises the alignment that is usual for its memory, 256 bytes for kernels, and this
#include <utility>
#include <weir/pool/pool.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>

#ifdef REJECT
using blocks = weir::placement::slab<64>;
#else
using blocks = weir::placement::slab<256>;
#endif

void use() {
    weir::any_device_pool pool(std::in_place_type<weir::pool<weir::upstream::device, blocks, weir::reuse::after_event>>);
    pool.trim();
}
