// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do threads meet?
//
// At an atomic, at a mutex, and in a loop that waits for what another thread does. All of weir takes these three from
// here and from base/mutex.hpp, so that a test can stand in the system's place and say at each meeting which thread
// goes on: tests/interleavings names a header of its own as WEIR_ATOMIC_HEADER, and tries every order.
//
// invariant: without that macro 'atomic' is std::atomic, and nothing stands between.
// order:     std::atomic's.
// cost:      none.
// not for:   users: a program defines the macro in all of its files alike, or in none.

#ifdef WEIR_ATOMIC_HEADER
#include WEIR_ATOMIC_HEADER // defines weir::atomic, weir::mutex and weir::spin
#else

#include <atomic>
#ifdef _WIN32
#include <thread>
#else
#include <sched.h> // a tenth of the compile time of <thread>
#endif

namespace weir {
inline namespace v0 {

template <class T>
using atomic = std::atomic<T>;

/// One turn of a loop that reads an atomic until another thread has written it; `turns`: those before this one. Lets
/// another thread run on this core once there were many, so that a holder that lost its core gets one back.
inline void spin(int turns) noexcept {
    constexpr int turns_before_yield = 100; // a critical section is shorter than this many reads
    if (turns < turns_before_yield)
        return;
#ifdef _WIN32
    std::this_thread::yield();
#else
    sched_yield();
#endif
}

} // namespace v0
} // namespace weir

#endif
