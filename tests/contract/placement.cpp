// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every placement of weir's does what every placement promises. A new one adds a line to the list; what it takes is said by a
// 'usual' where the default does not suit.

#include "placement_subject.hpp"
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/placement/slab.hpp>

namespace placement_contract {

namespace placement = weir::placement;
using routed = placement::by_size<64 * KiB, placement::bins<>, placement::best_fit<>>;
using routed_finely = placement::by_size<1 * KiB, placement::bins<16>, placement::best_fit<64>>;

template <std::size_t BlockBytes>
struct usual<placement::slab<BlockBytes>> {
    static constexpr std::size_t chunk_bytes = 1000 * BlockBytes;
    static constexpr std::size_t most_bytes = BlockBytes;
    static constexpr std::size_t most_alignment = placement::slab<BlockBytes>::granularity;
};
template <>
struct usual<placement::bins<16>> {
    static constexpr std::size_t chunk_bytes = 4 * MiB;
    static constexpr std::size_t most_bytes = 64 * KiB;
    static constexpr std::size_t most_alignment = 4 * KiB;
};

} // namespace placement_contract

#define WEIR_TEST_PLACEMENTS                                                                                           \
    placement::arena,                                                                                                  \
    placement::slab<64>,                                                                                               \
    placement::slab<48>,                                                                                               \
    placement::slab<4096>,                                                                                             \
    placement::bins<>,                                                                                                 \
    placement::bins<16>,                                                                                               \
    placement::best_fit<>,                                                                                             \
    placement::best_fit<256>,                                                                                          \
    placement::best_fit<16>,                                                                                           \
    routed,                                                                                                            \
    routed_finely

#include "placement_suite.hpp"
