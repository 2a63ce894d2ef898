// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth in place, in small chunks: how much does a pool ask its upstream for, and in which pieces?
//
// Some upstreams can map memory behind addresses that a pool already has. Then the pool can get just the bytes that it lacks,
// and it can give them back piece by piece.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/base/hole_watch.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// For upstreams that grow in place. The pool gets what is needed, and at least one chunk; chunks go back one by one. A chunk
/// has 1 / `Share` of the bytes that are held, itself included, but at least `LeastBytes` and at most `MostBytes`. Small
/// chunks leave less memory unused, since a chunk is held until all of it is free. Large chunks cost less, since each costs
/// about 40 us whatever its size. `LeastBytes` and `MostBytes` are multiples of 2 MiB. `Apart`: the policy for a device that
/// cannot grow in place.
template <std::size_t Share, std::size_t LeastBytes, std::size_t MostBytes, class Apart>
struct paged {
    static_assert(Share > 0, "weir: growth::paged grows by 1 / Share of what is held, so Share is at least 1");
    static_assert(LeastBytes > 0 && LeastBytes % (2 * MiB) == 0 && MostBytes % (2 * MiB) == 0 && LeastBytes <= MostBytes,
                  "weir: growth::paged has chunks of LeastBytes to MostBytes, both multiples of 2 MiB");
    using apart = Apart;
    static constexpr unsigned moved_percent = 200; // explained in by_holes.hpp

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        std::size_t const least = piece(reserved_bytes);
        return needed_bytes > least ? needed_bytes : least;
    }

    /// The bytes of a chunk, whatever holes there are. `reserved_bytes`: held from the upstream, what the pool is about to
    /// get included.
    static constexpr std::size_t piece(std::size_t reserved_bytes, base::holes = base::holes::never) noexcept {
        std::size_t const share = reserved_bytes / Share / (2 * MiB) * (2 * MiB);
        return share < LeastBytes ? LeastBytes : share > MostBytes ? MostBytes : share;
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
