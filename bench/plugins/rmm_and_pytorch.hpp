// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A plug-in: -DWEIR_BENCH_PLUGIN='"plugins/rmm_and_pytorch.hpp"', and both plugins/*_pools.cpp among the
// sources.

#include "pytorch_pools.hpp"
#include "rmm_pools.hpp"

namespace weir_bench {
using plugin_pools = joined<rmm_pools, pytorch_pools>;
}
