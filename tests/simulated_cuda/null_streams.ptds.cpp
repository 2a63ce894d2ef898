// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The same with per-thread default streams.

#include "null_streams.cpp"
