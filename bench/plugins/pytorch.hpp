// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A plug-in: -DWEIR_BENCH_PLUGIN='"plugins/pytorch.hpp"', and plugins/pytorch_pools.cpp among the sources.

#include "pytorch_pools.hpp"

namespace weir_bench {
using plugin_pools = pytorch_pools;
}
