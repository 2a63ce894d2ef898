// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A plug-in: -DWEIR_BENCH_PLUGIN='"plugins/rmm.hpp"', and plugins/rmm_pools.cpp among the sources.

#include "rmm_pools.hpp"

namespace weir_bench {
using plugin_pools = rmm_pools;
}
