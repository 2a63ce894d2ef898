// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A pool that two files share.
#include <weir/weir.hpp>

extern weir::host_pool shared_pool;
