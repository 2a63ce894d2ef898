// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The entry of every test program: one a folder of tests/.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
