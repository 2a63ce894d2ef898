// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in place whose chunk size depends on holes: how large are the chunks that a pool gets?
//
// A hole is a piece of free memory that is too small for the block that is needed (base/hole_watch.hpp says how holes are
// noticed). A pool without holes grows in large chunks, which cost few driver calls. A pool whose free memory lies in holes
// grows in small chunks, because a small chunk is sooner wholly free, and then its memory can be moved out of a hole to where
// it is needed.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/base/hole_watch.hpp>
#include <weir/base/size.hpp>
#include <weir/contract/growth_slot.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// For growth::paged in a pool that had holes which are filled at the moment.
struct filled_tuning {
    static constexpr std::size_t usual_chunks = 24;
    static constexpr std::size_t least_bytes = 32 * MiB;
    static constexpr std::size_t most_bytes = 64 * MiB;
    using apart = geometric<>;
};

/// For growth::paged in a pool that has holes.
struct holed_tuning {
    static constexpr std::size_t usual_chunks = 128;
    static constexpr std::size_t least_bytes = 4 * MiB;
    static constexpr std::size_t most_bytes = 32 * MiB;
    using apart = geometric<>;
};

/// The three policies of 'by_holes', each a growth::paged, and its constant. They were chosen on allocation traces of training,
/// serving and data frames, and on the same traces with other sizes. To change one, derive a struct from this one.
struct by_holes_tuning {
    /// For a pool that never had holes: a program that fills the pool does so with few chunks. Its 'apart' is for a device
    /// that cannot grow in place.
    using whole = paged<>;
    /// For a pool that had holes which are filled at the moment: what it gets will be moved often, so its chunks should be
    /// large and few.
    using filled = paged<filled_tuning>;
    /// For a pool that has holes: small chunks can be moved out of them.
    using holed = paged<holed_tuning>;
    /// Each time that more than this share of the held bytes was moved, the pool may hold more beyond the most that was ever
    /// in use (supply/slack.hpp); in percent, 1 or more. With 25, a program that repeats itself soon moves nothing; with
    /// 200, the pool holds little.
    static constexpr unsigned moved_percent = 25;
};

namespace detail {
template <class T>
using tunes_by_holes = decltype(T::whole::piece(std::size_t{}) + T::filled::piece(std::size_t{}) +
                                T::holed::piece(std::size_t{}) + T::moved_percent);
} // namespace detail

/// For upstreams that grow in place.
template <class Tuning>
struct by_holes {
    static_assert(contract::holds<detail::tunes_by_holes, Tuning>,
                  "weir: the tuning slot of growth::by_holes needs the members of weir::growth::by_holes_tuning, whose "
                  "'whole', 'filled' and 'holed' are each a growth::paged; derive from it, and include "
                  "<weir/growth/paged.hpp>");
    static_assert(Tuning::moved_percent > 0,
                  "weir: growth::by_holes gets more memory each time that 'moved_percent' per cent of it were moved, so "
                  "'moved_percent' is at least 1");
    using apart = typename Tuning::whole::apart;
    static constexpr unsigned moved_percent = Tuning::moved_percent;

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        return Tuning::whole::next(needed_bytes, reserved_bytes);
    }

    /// The bytes of a chunk. `reserved_bytes`: held from the upstream, what the pool is about to get included.
    static constexpr std::size_t piece(std::size_t reserved_bytes, base::holes seen) noexcept {
        return seen == base::holes::now       ? Tuning::holed::piece(reserved_bytes)
               : seen == base::holes::earlier ? Tuning::filled::piece(reserved_bytes)
                                              : Tuning::whole::piece(reserved_bytes);
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
