// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program's operator new, which fails when a test says so: see support/failing_new.hpp.

#define SUPPORT_OPERATOR_NEW
#include <support/failing_new.hpp>
