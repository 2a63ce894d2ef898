// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "plain_device.hpp"

using plain_pool = weir::pool<plain_device, weir::placement::best_fit<>, weir::reuse::after_event>;

#define WEIR_TEST_POOLS plain_pool
#include <weir/contract_tests/pool_suite.hpp>
