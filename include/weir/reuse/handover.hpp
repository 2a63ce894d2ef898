// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where another stream's memory would do, and the pool could grow as well: which comes first?
//
// Two rungs of the ladder in reuse/stream_ordered.hpp change places.
//
// invariant: read at compile time only.
// cost:      none.
// not for:   options at run time: see pool_options.

namespace weir {
inline namespace v0 {
namespace handover {
/// Rung 3 before rung 4: the pool grows before a stream is made to wait. Streams stay independent, at the price of more
/// memory.
struct grow_first {
    static constexpr bool waits_before_growing = false;
};
/// Rung 4 before rung 3: a stream is made to wait before the pool grows. This takes the least memory, at the price of streams
/// that wait for one another.
struct wait_first {
    static constexpr bool waits_before_growing = true;
};
} // namespace handover
} // namespace v0
} // namespace weir
