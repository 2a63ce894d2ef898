// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "plain_device.hpp"

#define WEIR_TEST_UPSTREAMS plain_device
#include <weir/contract_tests/upstream_suite.hpp>
