// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A placement of one's own, as examples/own_parts.md has it.
#include "first_fit.hpp"
#include <weir/contract_tests/placement_subject.hpp>

template <>
struct placement_contract::usual<first_fit> { // what is asked of it
    static constexpr std::size_t chunk_bytes = 4 * weir::MiB;
    static constexpr std::size_t most_bytes = 256 * weir::KiB;
    static constexpr std::size_t most_alignment = first_fit::granularity;
};

#define WEIR_TEST_PLACEMENTS first_fit
#include <weir/contract_tests/placement_suite.hpp>
