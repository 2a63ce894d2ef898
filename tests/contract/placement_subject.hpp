// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What the placement contract asks of a placement. One that does not take every size or alignment has a specialisation of
// 'usual' in the file that lists it. The cases are in placement_suite.hpp.

#include <cstddef>
#include <weir/base/size.hpp>

namespace placement_contract {

using weir::GiB;
using weir::KiB;
using weir::MiB;

/// Sizes and alignments that suit a placement: sizes that are spread over octaves, up to a sixteenth of a chunk.
template <class Placement>
struct usual {
    static constexpr std::size_t chunk_bytes = 4 * MiB;
    static constexpr std::size_t most_bytes = 256 * KiB;
    static constexpr std::size_t most_alignment = 8 * KiB;
};

} // namespace placement_contract
