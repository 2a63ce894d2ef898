// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do threads keep a count that must not go below zero, and the highest value it had?
//
// A faulty program may free a block twice, or free a block of another pool. A count that each free lowers therefore stops at
// zero. If it wrapped around, it would be wrong by the size of the whole address space.
//
// invariant: 'lower' never takes a count below zero; 'raise' never lowers a peak.
// order:     relaxed: a count says how many, not what happened before.
// cost:      one compare and exchange, more if threads collide; 'raise' is mostly a single load.
// not for:   counts that only grow: use fetch_add. Counts that many threads change at once: use central_count.

#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// Subtracts `by` from `count`, but stops at zero. Any thread.
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

/// Adds `by` to `count`, which one thread at a time writes and any may read.
template <class T>
void add_alone(atomic<T>& count, T by) noexcept {
    count.store(count.load(memory_order_relaxed) + by, memory_order_relaxed);
}

} // namespace base
} // namespace v0
} // namespace weir
