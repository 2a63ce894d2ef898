// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "pool.hpp"

weir::host_pool shared_pool{weir::pool_options{}.name("shared")};
