// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a section of code guarded that may have to wait, and how is any lock held for a scope?
//
// 'mutex' is the system's mutex, as std::mutex is. It does without <mutex>, which costs a sixth of a second of compile time
// in every file that includes weir. 'lock_guard' holds a mutex, a spin_lock or a no_lock until its scope ends. 'locked' does
// the same for an object that contains its own lock.
//
// invariant: at most one thread holds it; not recursive.
// order:     lock acquires, unlock releases; a thread that waits sleeps.
// cost:      14 ns for a lock and an unlock that nobody contends; 40 bytes.
// not for:   a few dozen instructions that wait for nothing: use spin_lock.

#include <weir/base/threads/atomic.hpp>
#ifndef WEIR_ATOMIC_HEADER // which defines 'mutex' too
#include <pthread.h>
#endif

namespace weir {
inline namespace v0 {
namespace base {

#ifndef WEIR_ATOMIC_HEADER
/// Meets the standard's Lockable. Any thread may call any member; the thread that locked must unlock.
class mutex {
public:
    constexpr mutex() noexcept = default;
    mutex(mutex const&) = delete;
    mutex& operator=(mutex const&) = delete;
    ~mutex() { pthread_mutex_destroy(&mutex_); }

    /// Blocks until the lock is held.
    void lock() noexcept { pthread_mutex_lock(&mutex_); } // a mutex of the default kind, whose locking cannot fail

    /// Takes the lock if it is free; never blocks.
    [[nodiscard]] bool try_lock() noexcept { return pthread_mutex_trylock(&mutex_) == 0; }

    void unlock() noexcept { pthread_mutex_unlock(&mutex_); }

private:
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};
#endif

/// Holds `lock` as long as this object lives. `Lock`: anything with 'lock' and 'unlock'.
template <class Lock>
class [[nodiscard]] lock_guard {
public:
    /// Blocks until the lock is held.
    explicit lock_guard(Lock& lock) : lock_(lock) { lock_.lock(); }
    lock_guard(lock_guard const&) = delete;
    lock_guard& operator=(lock_guard const&) = delete;
    ~lock_guard() { lock_.unlock(); }

private:
    Lock& lock_;
};

/// A pointer to an object that has a member 'lock'. The lock is held as long as the pointer lives.
template <class T>
class [[nodiscard]] locked {
public:
    enum held { already_held };
    /// Blocks until the lock is held.
    explicit locked(T& object) noexcept : object_(object) { object_.lock.lock(); }
    locked(T& object, held) noexcept : object_(object) {}
    locked(locked const&) = delete;
    locked& operator=(locked const&) = delete;
    ~locked() { object_.lock.unlock(); }
    T* operator->() const noexcept { return &object_; }
    T* get() const noexcept { return &object_; }

private:
    T& object_;
};

} // namespace base
} // namespace v0
} // namespace weir
