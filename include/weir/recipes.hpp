// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which combinations are good, and what are they called?
//
// These are ready-made pools that suit most programs; write your own beside them. Each has a header of its own, which costs a
// compiler less. All but the driver's pool wear layer::guard in debug builds: see recipes/pool_of.hpp.
//
// cost:      as their parts document.
// not for:   new code: a recipe that needs code is a part that is missing.

#include <weir/driver/driver_pool.hpp>
#include <weir/recipes/compact_device_pool.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/recipes/frame_pool.hpp>
#include <weir/recipes/host_pool.hpp>
#include <weir/recipes/managed_pool.hpp>
#include <weir/recipes/node_pool.hpp>
#include <weir/recipes/pinned_pool.hpp>
#include <weir/recipes/promised_device_pool.hpp>
