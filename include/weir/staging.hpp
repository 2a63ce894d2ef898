// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// staging: how do data move between the host and a device?
//
// The umbrella of staging/, which <weir/weir.hpp> leaves out. It brings all that moves bytes through pinned memory: the ring,
// its copying threads, copies of one piece or many or of numbers that are stored in fewer bits, data sets that are processed
// chunk by chunk, and buffers that leave the device while others need its memory.
//
// not for:   code that moves nothing: pools and containers do without.

#include <weir/fwd.hpp>

#include <weir/converting/stored_vector.hpp>
#include <weir/staging/converted_copy.hpp>
#include <weir/staging/copy.hpp>
#include <weir/staging/copy_batch.hpp>
#include <weir/staging/spill.hpp>
#include <weir/staging/streaming.hpp>
