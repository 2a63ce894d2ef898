// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How large a chunk does a pool ask its upstream for?
//
// A policy is a function of what is needed now and what is held already. Large chunks cost fewer driver calls;
// small ones leave less unused at the peak. A pool that is refused asks once more for just what it needs.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/base/contracts.hpp>
#include <weir/base/hole_watch.hpp>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// Chunks of `ChunkBytes` bytes; a larger need gets its own size.
template <std::size_t ChunkBytes>
struct fixed {
    static_assert(ChunkBytes > 0, "weir: growth::fixed needs a chunk size of at least one byte");

    /// Bytes to ask for when `needed_bytes` are needed and `reserved_bytes` held.
    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t) noexcept {
        return needed_bytes > ChunkBytes ? needed_bytes : ChunkBytes;
    }
};

/// `Percent` of what is held already, `FirstBytes` at least, so that the number of driver calls grows as the
/// logarithm of the footprint; a need of `ExactBytes` or more gets its own size, so that large blocks leave nothing
/// unused beside them. The defaults were chosen on allocation traces of training, serving and data frames.
template <std::size_t FirstBytes, unsigned Percent, std::size_t ExactBytes>
struct geometric {
    static_assert(FirstBytes > 0, "weir: growth::geometric needs a first chunk of at least one byte");
    static_assert(Percent > 0 && Percent <= 100, "weir: growth::geometric grows by 1 to 100 percent");

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        if (needed_bytes >= ExactBytes)
            return needed_bytes;
        std::size_t const share = reserved_bytes / 100 * Percent;
        std::size_t const least = share > FirstBytes ? share : FirstBytes;
        return needed_bytes > least ? needed_bytes : least;
    }
};

/// For upstreams that grow in place: what is needed, a chunk at least, in chunks that go back one by one. A chunk has
/// 1 / `Share` of the bytes that are held with it, but `LeastBytes` at least and `MostBytes` at most. Small chunks leave less
/// unused, since each is held until all of it is free; large ones cost less, since each costs about 40 us whatever its
/// size. Both are multiples of 2 MiB. `Apart`: the policy where a device cannot grow in place.
template <std::size_t Share, std::size_t LeastBytes, std::size_t MostBytes, class Apart>
struct paged {
    static_assert(Share > 0, "weir: growth::paged grows by 1 / Share of what is held, so Share is at least 1");
    static_assert(LeastBytes > 0 && LeastBytes % (2 * MiB) == 0 && MostBytes % (2 * MiB) == 0 && LeastBytes <= MostBytes,
                  "weir: growth::paged has chunks of LeastBytes to MostBytes, both multiples of 2 MiB");
    using apart = Apart;
    static constexpr unsigned moved_percent = 200; // see by_holes

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        std::size_t const least = piece(reserved_bytes);
        return needed_bytes > least ? needed_bytes : least;
    }

    /// Bytes of a chunk when `reserved_bytes` are held, with what is got, whatever holes there are.
    static constexpr std::size_t piece(std::size_t reserved_bytes, holes = holes::never) noexcept {
        std::size_t const share = reserved_bytes / Share / (2 * MiB) * (2 * MiB);
        return share < LeastBytes ? LeastBytes : share > MostBytes ? MostBytes : share;
    }
};

/// For upstreams that grow in place: `Whole` while free memory lies together, so that a program that fills the pool does
/// so at the cost of few chunks; `Holed` where it lies in holes (base/hole_watch.hpp), since small chunks can be moved out
/// of holes; and `Filled` where there were holes that are filled now: what is moved often is moved in few large chunks. All
/// three are growth::paged. Each time that more than `MovedPercent` per cent of what is held were moved, the pool may hold
/// more above the most that was in use (base/hysteresis.hpp): a program that repeats itself soon moves nothing at 25, and
/// holds little at 200. The defaults were chosen on allocation traces of training, serving and data frames, and on the
/// same with other sizes.
template <class Whole, class Filled, class Holed, unsigned MovedPercent>
struct by_holes {
    static_assert(contracts::holds<contracts::has_piece, Whole> && contracts::holds<contracts::has_piece, Filled> &&
                      contracts::holds<contracts::has_piece, Holed>,
                  "weir: growth::by_holes takes three growths in pieces: growth::paged, each");
    static_assert(MovedPercent > 0, "weir: growth::by_holes gets more memory each time that MovedPercent per cent of it were "
                                    "moved, so MovedPercent is at least 1");
    using apart = typename Whole::apart;
    static constexpr unsigned moved_percent = MovedPercent;

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        return Whole::next(needed_bytes, reserved_bytes);
    }

    /// Bytes of a chunk when `reserved_bytes` are held, with what is got.
    static constexpr std::size_t piece(std::size_t reserved_bytes, holes seen) noexcept {
        return seen == holes::now       ? Holed::piece(reserved_bytes)
               : seen == holes::earlier ? Filled::piece(reserved_bytes)
                                        : Whole::piece(reserved_bytes);
    }
};

/// Just what is needed, a driver call for each: the smallest footprint, for a few large and lasting blocks.
struct exact {
    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t) noexcept { return needed_bytes; }
};

} // namespace growth
} // namespace v0
} // namespace weir
