// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do threads keep a count that must not wrap, and its peak?
//
// A program may free a block twice, or one of another pool. A count that each free takes from stops at zero then, since one
// that wrapped would be out by all of the address space.
//
// invariant: no lowering takes a count below zero, no raising takes a peak down.
// order:     relaxed: a count says how many, not what happened before.
// cost:      one compare and exchange, more where threads meet; 'raise' mostly a load.
// not for:   counts that only grow: fetch_add does.

#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// Takes `by` off `count`, but not below zero. Any thread.
template <class T>
void lower(atomic<T>& count, T by) noexcept {
    T before = count.load(memory_order_relaxed);
    while (!count.compare_exchange_weak(before, before > by ? before - by : 0, memory_order_relaxed)) {
    }
}

/// Makes `peak` at least `now`. Any thread.
template <class T>
void raise(atomic<T>& peak, T now) noexcept {
    T seen = peak.load(memory_order_relaxed);
    while (seen < now && !peak.compare_exchange_weak(seen, now, memory_order_relaxed)) {
    }
}

} // namespace base
} // namespace v0
} // namespace weir
