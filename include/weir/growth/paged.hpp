// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in place, in small chunks: how much does a pool ask its upstream for, and in which pieces?
//
// Some upstreams can map memory behind addresses that a pool already has. Then the pool can get just the bytes that it lacks,
// and it can give them back piece by piece. It gets what is needed, and at least one chunk; chunks go back one by one. Small
// chunks leave less memory unused, since a chunk is held until all of it is free. Large chunks cost less, since each costs
// about 40 us whatever its size. So a chunk is a share of what is held, between two bounds.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/base/hole_watch.hpp>
#include <weir/base/size.hpp>
#include <weir/contract/holds.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// The constants of 'paged'. To change one, derive a struct from this one.
struct paged_tuning {
    /// How many chunks of the usual size make up what is held, 1 or more. More: less memory stays unused. Fewer: fewer driver
    /// calls.
    static constexpr std::size_t usual_chunks = 16;
    /// The least and the most bytes of a chunk, whatever is held: multiples of 2 MiB. Greater: fewer driver calls, in small
    /// pools and in large ones. Smaller: less memory stays unused there.
    static constexpr std::size_t least_bytes = 8 * MiB;
    static constexpr std::size_t most_bytes = 64 * MiB;
    /// The policy for a device that cannot grow in place.
    using apart = geometric<>;
};

namespace detail {
template <class T>
using tunes_paged = decltype(T::usual_chunks + T::least_bytes + T::most_bytes, static_cast<typename T::apart*>(nullptr));
} // namespace detail

/// For upstreams that grow in place.
template <class Tuning>
struct paged {
    static_assert(contract::holds<detail::tunes_paged, Tuning>,
                  "weir: the tuning slot of growth::paged needs the members of weir::growth::paged_tuning; derive from it");
    static_assert(Tuning::usual_chunks > 0, "weir: growth::paged needs 'usual_chunks' of at least 1");
    static_assert(Tuning::least_bytes > 0 && Tuning::least_bytes % (2 * MiB) == 0 && Tuning::most_bytes % (2 * MiB) == 0 &&
                      Tuning::least_bytes <= Tuning::most_bytes,
                  "weir: growth::paged has chunks of 'least_bytes' to 'most_bytes', both multiples of 2 MiB");
    using apart = typename Tuning::apart;
    static constexpr unsigned moved_percent = 200; // explained in by_holes.hpp

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        std::size_t const least = piece(reserved_bytes);
        return needed_bytes > least ? needed_bytes : least;
    }

    /// The bytes of a chunk, whatever holes there are. `reserved_bytes`: held from the upstream, what the pool is about to
    /// get included.
    static constexpr std::size_t piece(std::size_t reserved_bytes, base::holes = base::holes::never) noexcept {
        std::size_t const share = reserved_bytes / Tuning::usual_chunks / (2 * MiB) * (2 * MiB);
        return share < Tuning::least_bytes ? Tuning::least_bytes : share > Tuning::most_bytes ? Tuning::most_bytes : share;
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
