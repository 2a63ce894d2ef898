// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool holds least?
//
// order:     as device_pool; a stream waits for another stream's memory before the pool grows.
// cost:      growth takes several times as long as device_pool's.
// not for:   streams that must not wait for one another.

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>
#include <weir/growth/paged.hpp>
#include <weir/recipes/general_device_pool.hpp>
#include <weir/reuse/stream_ordered.hpp>

namespace weir {
inline namespace v0 {
namespace recipes {

/// compact_device_pool's growth: chunks of nearly a page each, and hardly more of them than ever were in use.
struct compact_whole : growth::paged_tuning {
    static constexpr std::size_t usual_chunks = 128;
    static constexpr std::size_t least_bytes = 2 * MiB;
};
struct compact_filled : compact_whole {
    static constexpr std::size_t usual_chunks = 256;
};
struct compact_holed : compact_whole {
    static constexpr std::size_t usual_chunks = 512;
};
struct compact_growth : growth::by_holes_tuning {
    using whole = growth::paged<compact_whole>;
    using filled = growth::paged<compact_filled>;
    using holed = growth::paged<compact_holed>;
    static constexpr unsigned moved_percent = 200;
};
/// As device_pool, with the smallest footprint. It maps memory nearly page by page, which takes a cold pool longer, and a
/// stream waits for another stream's memory before the pool grows.
struct compact_device {
    using parts = general_device_pool<reuse::stream_ordered<identity::checked, handover::wait_first>,
                                      growth::by_holes<compact_growth>>;
};

} // namespace recipes
} // namespace v0
} // namespace weir
