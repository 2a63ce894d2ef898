// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A growth policy of one's own, as examples/own_parts.md has it.
#include "doubling.hpp"

#define WEIR_TEST_GROWTHS doubling
#include <weir/contract_tests/growth_suite.hpp>
