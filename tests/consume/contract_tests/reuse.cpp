// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A reuse rule of one's own over a placement of one's own, as examples/own_parts.md has them.
#include "at_end_of_step.hpp"
#include "first_fit.hpp"
#include <weir/contract_tests/reuse_subject.hpp>

using steps = reuse_contract::bound<at_end_of_step, first_fit>;

template <>
struct reuse_contract::usual<steps> { // what is asked of it
    static constexpr std::size_t most_alignment = first_fit::granularity;
    static constexpr bool host_gets_back_at_once = false;
};

#define WEIR_TEST_RULES steps
#include <weir/contract_tests/reuse_suite.hpp>
