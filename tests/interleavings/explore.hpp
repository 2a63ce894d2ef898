// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What every file of programs includes first: weir with the atomics whose turns are decided here, and the search.

#define WEIR_ATOMIC_HEADER <interleavings/atomic.hpp>

#include "turns.hpp"

#include <doctest/doctest.h>
