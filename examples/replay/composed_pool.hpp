// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How would I compose a pool for a program that has memory to spare, and must not stop for the driver?
//
// Chunks of 64 MiB, so that cudaMalloc and cudaFree, which stop the program and the device, are rare. One
// placement for all sizes. And the promise that streams outlive the pool, which saves two questions to CUDA
// an allocation.
//
// Change a line, run 'replay', and see in the table what it buys and what it costs.

#include <weir/weir.hpp>

namespace replay {

using composed_pool =
    weir::pool<weir::upstream::device,                                // where chunks come from
               weir::placement::best_fit<>,                           // which bytes of a chunk
               weir::reuse::stream_ordered<weir::identity::promised>, // when freed bytes come back
               weir::growth::fixed<64 * weir::MiB>>;                  // how large the next chunk is

} // namespace replay
