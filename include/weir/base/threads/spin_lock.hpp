// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are a few dozen instructions guarded?
//
// By a flag that waiters only read until it is clear (test-and-test-and-set). Lock and unlock take 7 ns uncontended on a
// server core, where a mutex takes 14. A waiter gives up its core after a short while, so that a holder that lost its core
// gets one back.
//
// invariant: at most one thread holds it; not recursive.
// order:     lock acquires, unlock releases.
// cost:      one exchange and one store, no system call, 1 byte.
// not for:   sections that wait for anything: use mutex. There is one exception: the set of a stream's freed blocks records
//            and queries events under its lock (150 ns each); its head says what that may wait for.

#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// Meets the standard's Lockable. Any thread may call any member; the thread that locked must unlock.
class spin_lock {
public:
    spin_lock() noexcept = default;
    spin_lock(spin_lock const&) = delete;
    spin_lock& operator=(spin_lock const&) = delete;

    /// Blocks until the lock is held.
    [[gnu::always_inline]] void lock() noexcept {
        if (held_.exchange(true, memory_order_acquire))
            wait();
    }

    /// Takes the lock if it is free; never blocks.
    [[nodiscard]] bool try_lock() noexcept {
        return !held_.load(memory_order_relaxed) && !held_.exchange(true, memory_order_acquire);
    }

    void unlock() noexcept { held_.store(false, memory_order_release); }

private:
    // Not inlined, so that taking a lock that is free stays short.
    [[gnu::noinline]] void wait() noexcept {
        do {
            for (unsigned turns = 0; held_.load(memory_order_relaxed); ++turns)
                spin(turns);
        } while (held_.exchange(true, memory_order_acquire));
    }

    atomic<bool> held_{false};
};

/// A lock that does nothing, for parts that only one thread uses at a time.
struct no_lock {
    void lock() noexcept {}
    [[nodiscard]] bool try_lock() noexcept { return true; }
    void unlock() noexcept {}
};

} // namespace base
} // namespace v0
} // namespace weir
