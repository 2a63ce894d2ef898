// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth by a share of what is held: how much does a pool ask its upstream for?
//
// Large chunks cost fewer driver calls; small chunks leave less memory unused at the peak. So a chunk is a fixed share of
// what the pool holds already, and the number of driver calls grows as the logarithm of the pool's size.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/contract/holds.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// The constants of 'geometric', chosen on allocation traces of training, serving and data frames. To change one, derive a
/// struct from this one.
struct geometric_tuning {
    /// The least bytes of a chunk, 1 or more. Greater: fewer driver calls while the pool is small. Smaller: small pools hold
    /// less.
    static constexpr std::size_t first_bytes = 16 * MiB;
    /// The share of a chunk in what is held already, 1 to 100 percent. Greater: fewer driver calls. Smaller: less memory stays
    /// unused at the peak.
    static constexpr unsigned share_percent = 8;
    /// From this many bytes on, what is needed gets a chunk of its own size, so that no memory stays unused beside large
    /// blocks. Greater: large blocks share chunks, with fewer driver calls. Smaller: a smaller footprint.
    static constexpr std::size_t exact_bytes = 10 * MiB;
};

namespace detail {
template <class T>
using tunes_geometric = decltype(T::first_bytes + T::share_percent + T::exact_bytes);
} // namespace detail

/// Growth by a share of what the pool holds, so that the number of chunks stays small however large it becomes.
template <class Tuning>
struct geometric {
    static_assert(contract::holds<detail::tunes_geometric, Tuning>,
                  "weir: the tuning slot of growth::geometric needs the three numbers of weir::growth::geometric_tuning; "
                  "derive from it");
    static_assert(Tuning::first_bytes > 0, "weir: growth::geometric needs 'first_bytes' of at least one byte");
    static_assert(Tuning::share_percent > 0 && Tuning::share_percent <= 100,
                  "weir: growth::geometric grows by a 'share_percent' of 1 to 100");

    static constexpr std::size_t next(std::size_t needed_bytes, std::size_t reserved_bytes) noexcept {
        if (needed_bytes >= Tuning::exact_bytes)
            return needed_bytes;
        std::size_t const share = reserved_bytes / 100 * Tuning::share_percent;
        std::size_t const least = share > Tuning::first_bytes ? share : Tuning::first_bytes;
        return needed_bytes > least ? needed_bytes : least;
    }
};

} // namespace growth
} // namespace v0
} // namespace weir
