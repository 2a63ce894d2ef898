// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which of several threads goes on, at every place where it could matter?
//
// A program is a function that makes its objects, runs two or three 'threads' over them and looks at what is left.
// The threads are contexts on the stack of none (fibers): one system thread runs them all, and hands the turn over at
// every operation on an atomic, at every lock, wait and CUDA call, which weir's seam (base/threads/atomic.hpp) brings here.
// 'search' runs the program again and again:
//
//   systematic   every schedule with at most so many preemptions (turns taken from a thread that could go on), with
//                none first, so that what is found is found in its simplest form: iterative context bounding,
//                Musuvathi and Qadeer, PLDI 2007. Most errors of threads need no more than two.
//   random       many schedules of a seed each, some restless and some not; there atomics fail spuriously too.
//   replay       one schedule, as the report of a failure wrote it.
//
// A failure is a 'require' that does not hold, an exception that leaves a thread, a deadlock (which a lost wake-up ends
// in), a livelock (more steps than any schedule needs), an atomic that is used after its destruction, or a program that
// is not the same each time. The schedule that failed is abandoned where it stands: nothing is unwound.
//
// A thread may lose its turn before every operation, and after one that wrote, so that what is published before it is
// whole is seen so. What runs is sequentially consistent, and what lies between is one piece: the orders of memory, and
// plain data that no lock guards, are the thread sanitizer's to judge. Under that one nothing is explored, because turns
// hide what it looks for; under the address sanitizer fewer schedules are.
//
// A thread that waits for another (a mutex, a loop that spins) gives its turn away, and that is no preemption; it may
// go on once what it waits for was written.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

namespace interleavings {

/// Under the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool left_out = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool left_out = true;
#else
inline constexpr bool left_out = false;
#endif
#else
inline constexpr bool left_out = false;
#endif

// ---- what programs are written in --------------------------------------------------------------------------------

/// Fails the schedule unless `holds`.
void require(bool holds, char const* sentence);

/// A place where another thread may go on, as if an atomic were read.
void yield();

/// 0 to n - 1: each of them in turn. Not a preemption.
std::size_t choose(std::size_t n);

/// From now to the end of the schedule `check` runs at every step. It may read atomics, and must take no lock.
void always(std::function<void()> check);

/// Runs the functions as threads, until all have ended. In the program itself, once or several times.
template <class... Functions>
void threads(Functions&&... functions);

// ---- exploring ---------------------------------------------------------------------------------------------------

struct plan {
    int preemptions = 2;           ///< of the systematic schedules; negative: none are tried
    std::uint64_t random = 100'000; ///< schedules
    std::uint64_t seed = 1;
    std::size_t most_steps = 20'000; ///< of a schedule; more is a livelock
};

struct outcome {
    std::uint64_t systematic = 0; ///< schedules that ran: all there are, unless one failed
    std::uint64_t random = 0;
    std::size_t longest = 0; ///< steps
    std::string failure;     ///< a sentence; empty: none
    std::string schedule;    ///< that failed: "0*3 1*12" is three turns of thread 0 and twelve of thread 1; "=1" a choice
    std::string trace;       ///< what its threads did, the last of it
};

/// Runs `program` under the schedules of the plan, or until one fails.
outcome search(std::function<void()> const& program, plan const& what = {});

/// Runs `program` under one schedule, written as outcome::schedule; beyond its end threads go on as long as they can.
outcome replay(std::function<void()> const& program, std::string const& schedule, plan const& what = {});

/// Whether a tenth of the random schedules will do: WEIR_QUICK is set, or the address sanitizer looks on.
bool in_short();

/// The same as a check of the present test case; says how many schedules there were. By the environment:
/// WEIR_INTERLEAVINGS=N  so many times the random schedules, and one more preemption
/// WEIR_SCHEDULE=...     this schedule only; choose the test case with doctest's filters
/// WEIR_QUICK            in short
void explore(std::function<void()> const& program, plan const& what = {});

// ---- what weir's atomics, mutexes and waits call (atomic.hpp) --------------------------------------------------------

namespace inside {

extern bool taking_turns; ///< threads are under way, and it is one of them that asks

void step(char const* what, void const* where); ///< before an operation: others may go first
void saw(void const* where, std::uint64_t value);
void wrote(void const* where, std::uint64_t value);   ///< wakes who waits for it; others may go on
void wait_for(void const* where, char const* what);   ///< until it is written
void wait_for_write_of_last_read();                   ///< unless it was written since
bool fails_spuriously();
std::size_t present_thread(); ///< its number, from 0; the program's own: as the first's
[[noreturn]] void fail(std::string sentence);

void begin_threads();
void add_thread(void (*run)(void*), void* object);
void run_threads();

} // namespace inside

template <class... Functions>
void threads(Functions&&... functions) {
    inside::begin_threads();
    (inside::add_thread([](void* object) { (*static_cast<std::remove_reference_t<Functions>*>(object))(); },
                        const_cast<void*>(static_cast<void const*>(&functions))),
     ...);
    inside::run_threads();
}

} // namespace interleavings
