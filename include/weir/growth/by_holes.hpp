// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in place whose chunk size depends on holes: how large are the chunks that a pool gets?
//
// A hole is a piece of free memory that is too small for the block that is needed. A pool without holes grows in large
// chunks, which cost few driver calls. A pool whose free memory lies in holes grows in small chunks, because a small chunk is
// sooner wholly free, and then its memory can be moved out of a hole to where it is needed.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/base/hole_watch.hpp>
#include <weir/contract/growth_slot.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// For upstreams that grow in place. It picks one of three policies, each a growth::paged (base/hole_watch.hpp says how holes
/// are noticed). `Whole` is for a pool that never had holes: a program that fills the pool does so with few chunks. `Holed`
/// is for a pool that has holes, with small chunks that can be moved out of them. `Filled` is for a pool that had holes which
/// are filled at the moment: what it gets will be moved often, so its chunks should be large and few.
///
/// `MovedPercent`: each time that more than this share of the held bytes was moved, the pool may hold more beyond the most
/// that was ever in use (pool/pool/slack.hpp). With 25, a program that repeats itself soon moves nothing; with 200, the pool
/// holds little. The defaults were chosen on allocation traces of training, serving and data frames, and on the same traces
/// with other sizes.
template <class Whole, class Filled, class Holed, unsigned MovedPercent>
struct by_holes {
    static_assert(contract::holds<contract::has_piece, Whole> && contract::holds<contract::has_piece, Filled> &&
                      contract::holds<contract::has_piece, Holed>,
                  "weir: growth::by_holes takes three growths in pieces: growth::paged, each; include <weir/growth/paged.hpp>");
    static_assert(MovedPercent > 0, "weir: growth::by_holes gets more memory each time that MovedPercent per cent of it were "
                                    "moved, so MovedPercent is at least 1");
    using apart = typename Whole::apart;
    static constexpr unsigned moved_percent = MovedPercent;

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        return Whole::next(needed_bytes, reserved_bytes);
    }

    /// The bytes of a chunk. `reserved_bytes`: held from the upstream, what the pool is about to get included.
    static constexpr std::size_t piece(std::size_t reserved_bytes, base::holes seen) noexcept {
        return seen == base::holes::now       ? Holed::piece(reserved_bytes)
               : seen == base::holes::earlier ? Filled::piece(reserved_bytes)
                                        : Whole::piece(reserved_bytes);
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
