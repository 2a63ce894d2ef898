// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do weir's own tests write for the simulated device?
//
// The same names as users, who include <weir/simulated_device.hpp>, but under the name of this folder, and without the
// parts that stand on weir's headers: those are what is tested here.
//
// invariant: nothing is declared here.
// cost:      control.hpp's.
// not for:   users; this header is not installed.

#include "include/weir/simulated_device/control.hpp"
#include "include/weir/simulated_device/kernels.hpp"

namespace simulated_cuda = simulated_device;
