// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in place, in chunks that suit the holes: how large are the pieces of what a pool gets?
//
// A pool without holes grows in large chunks, which cost little. One whose free memory lies in holes grows in small ones,
// since those can be moved out of holes.
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

/// For upstreams that grow in place: `Whole` while free memory lies together, so that a program that fills the pool does
/// so at the cost of few chunks; `Holed` where it lies in holes (base/hole_watch.hpp), since small chunks can be moved out
/// of holes; and `Filled` where there were holes that are filled now: what is moved often is moved in few large chunks. All
/// three are growth::paged. Each time that more than `MovedPercent` per cent of what is held were moved, the pool may hold
/// more above the most that was in use (slack.hpp): a program that repeats itself soon moves nothing at 25, and
/// holds little at 200. The defaults were chosen on allocation traces of training, serving and data frames, and on the
/// same with other sizes.
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

    /// Bytes of a chunk when `reserved_bytes` are held, with what is got.
    static constexpr std::size_t piece(std::size_t reserved_bytes, base::holes seen) noexcept {
        return seen == base::holes::now       ? Holed::piece(reserved_bytes)
               : seen == base::holes::earlier ? Filled::piece(reserved_bytes)
                                        : Whole::piece(reserved_bytes);
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
