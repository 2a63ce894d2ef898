// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Growth policies by their numbers, for tests that need many of them. The defaults are those of weir.

#include <cstddef>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>

namespace support {

template <std::size_t FirstBytes, unsigned SharePercent, std::size_t ExactBytes>
struct geometric_numbers {
    static constexpr std::size_t first_bytes = FirstBytes;
    static constexpr unsigned share_percent = SharePercent;
    static constexpr std::size_t exact_bytes = ExactBytes;
};
template <std::size_t FirstBytes, unsigned SharePercent, std::size_t ExactBytes>
using geometric_of = weir::growth::geometric<geometric_numbers<FirstBytes, SharePercent, ExactBytes>>;

template <std::size_t UsualChunks, std::size_t LeastBytes, std::size_t MostBytes, class Apart>
struct paged_numbers {
    static constexpr std::size_t usual_chunks = UsualChunks;
    static constexpr std::size_t least_bytes = LeastBytes;
    static constexpr std::size_t most_bytes = MostBytes;
    using apart = Apart;
};
template <std::size_t UsualChunks, std::size_t LeastBytes = weir::growth::paged_tuning::least_bytes,
          std::size_t MostBytes = weir::growth::paged_tuning::most_bytes, class Apart = weir::growth::geometric<>>
using paged_of = weir::growth::paged<paged_numbers<UsualChunks, LeastBytes, MostBytes, Apart>>;

template <class Whole, class Filled, class Holed, unsigned MovedPercent>
struct by_holes_numbers {
    using whole = Whole;
    using filled = Filled;
    using holed = Holed;
    static constexpr unsigned moved_percent = MovedPercent;
};
template <class Whole, class Filled, class Holed, unsigned MovedPercent = weir::growth::by_holes_tuning::moved_percent>
using by_holes_of = weir::growth::by_holes<by_holes_numbers<Whole, Filled, Holed, MovedPercent>>;

} // namespace support
