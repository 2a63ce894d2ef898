// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth by a share of what is held: how much does a pool ask its upstream for?
//
// Large chunks cost fewer driver calls; small chunks leave less memory unused at the peak. So a chunk is a fixed share of
// what the pool holds already. The pool then makes few driver calls, however large it becomes.
//
// invariant: the answer is at least what is needed.
// cost:      arithmetic.
// not for:   a hard limit: see pool_options::limit.

#include <cstddef>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace growth {

/// A chunk has `Percent` of what is held already, and at least `FirstBytes`, so the number of driver calls grows as the
/// logarithm of the pool's size. A need of `ExactBytes` or more gets a chunk of its own size, so that no memory stays unused
/// beside large blocks. The defaults were chosen on allocation traces of training, serving and data frames.
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

} // namespace growth
} // namespace v0
} // namespace weir
