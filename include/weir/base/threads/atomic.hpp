// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Through what do threads affect each other?
//
// Through an atomic, through a mutex, or in a loop that waits for another thread. All of weir takes these three from here and
// from base/threads/mutex.hpp. So a test can replace them and decide at each of these points which thread runs next:
// tests/interleavings names a header of its own as WEIR_ATOMIC_HEADER, and tries every order.
//
// 'atomic' has the members of std::atomic that weir needs. They call the compiler's builtins, as libstdc++ and libc++ do.
// With nvcc, <atomic> itself would cost an eighth of what all of weir costs a file that includes it.
//
// invariant: an atomic is as large as its value and lock-free. Without the macro there is no layer in between.
// order:     as std::atomic; each call names its own.
// cost:      as std::atomic.
// not for:   users. A program that defines the macro must define it in all of its files.

#ifdef WEIR_ATOMIC_HEADER
#include WEIR_ATOMIC_HEADER // defines weir::base::atomic, weir::base::memory_order, weir::base::mutex and weir::base::spin
#else

#ifdef _WIN32
#error "weir: is for Linux, with GCC or Clang as the host's compiler; on Windows build under WSL 2"
#endif

#include <cstddef>
#include <cstdint>
#include <sched.h> // a tenth of the compile time of <thread>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <pthread.h>
#endif

namespace weir {
inline namespace v0 {
namespace base {

enum memory_order : int {
    memory_order_relaxed = __ATOMIC_RELAXED,
    memory_order_acquire = __ATOMIC_ACQUIRE,
    memory_order_release = __ATOMIC_RELEASE,
    memory_order_acq_rel = __ATOMIC_ACQ_REL
};

/// A value that several threads may read and write at once. `T` is a whole number, a bool or a pointer.
template <class T>
class atomic {
    static_assert(__atomic_always_lock_free(sizeof(T), nullptr), "weir: an atomic is at most as large as a pointer");

public:
    constexpr atomic(T value) noexcept : value_(value) {}
    atomic(atomic const&) = delete;
    atomic& operator=(atomic const&) = delete;

    T load(memory_order order) const noexcept { return __atomic_load_n(&value_, order); }
    void store(T value, memory_order order) noexcept { __atomic_store_n(&value_, value, order); }
    // These return the value that was there before.
    T exchange(T value, memory_order order) noexcept { return __atomic_exchange_n(&value_, value, order); }
    T fetch_add(T value, memory_order order) noexcept { return __atomic_fetch_add(&value_, value, order); }
    T fetch_sub(T value, memory_order order) noexcept { return __atomic_fetch_sub(&value_, value, order); }
    /// If the value is `expected`, writes `desired`; else reads the value into `expected`. It may also fail without a reason.
    /// A failure orders nothing.
    bool compare_exchange_weak(T& expected, T desired, memory_order order) noexcept {
        return __atomic_compare_exchange_n(&value_, &expected, desired, true, order, memory_order_relaxed);
    }

private:
    T value_;
};

/// One turn of a loop that reads an atomic until another thread has written it. `turns`: the turns before this one. After
/// many turns this lets another thread run on the core, so that a lock's holder that lost its core gets one back.
inline void spin(unsigned turns) noexcept {
    constexpr unsigned turns_before_yield = 100; // a critical section is shorter than this many reads
    if (turns < turns_before_yield)
        return;
    sched_yield();
}

/// Into how many parts a count is cut so that threads do not meet in it. More than a server's threads that allocate at once.
inline constexpr std::size_t thread_shards = 64;

/// A number that no other running thread has: the page of what the system keeps for the calling one. Two instructions.
inline std::uintptr_t this_thread() noexcept {
#if defined(__x86_64__)
    std::uintptr_t own;
    __asm__("movq %%fs:0, %0" : "=r"(own));
    return own >> 12;
#elif defined(__aarch64__)
    std::uintptr_t own;
    __asm__("mrs %0, tpidr_el0" : "=r"(own));
    return own >> 12;
#else
    return (std::uintptr_t)pthread_self() >> 12; // a number on some systems, a pointer on others
#endif
}

} // namespace base
} // namespace v0
} // namespace weir

#endif
