// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How does a seed decide among threads?
//
// Threads of run_threads hold one turn among them. At every CUDA call, control call and yield the holder asks
// the world's generator who goes on. A thread that cannot go on until another has (a contended std::mutex, a
// spin that yields the processor, a wait for a closed gate) says so and is passed over until somebody has
// moved; for that the two functions through which such waits go are defined here, ahead of the system's.
//
// invariant: one participant runs at a time; what the others see of it is ordered by the turn's mutex.
// not for:   rwlocks and condition variables of the test: a thread blocked in one keeps the turn.
//
// Under the thread sanitizer threads run freely: turns would order everything and hide what it looks for.

#include "calls.hpp"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define SIMULATED_CUDA_FREE_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMULATED_CUDA_FREE_THREADS 1
#endif
#endif

namespace simulated_device::inside {

namespace {

struct turn_table {
    explicit turn_table(std::size_t places) : mine(places), ended(places, false), stuck(places, false) {}

    void hand_to(std::size_t place) {
        turn = place;
        mine[place].notify_one();
    }

    std::mutex mutex;
    std::vector<std::condition_variable> mine; ///< one a place: to wake one is not to wake all
    std::vector<bool> ended;
    std::vector<bool> stuck;
    std::size_t turn = 0;
};

thread_local turn_table* table = nullptr;
thread_local std::size_t own_place = 0;
thread_local bool busy = false; ///< inside the turnstile: locks are the system's
thread_local void (*hook_of_test)() = nullptr;

struct busy_scope {
    bool before = busy;
    busy_scope() { busy = true; }
    ~busy_scope() { busy = before; }
};

std::size_t draw(std::size_t n) {
    locked scope;
    return decide(scope.world, n);
}

/// How often threads switch is the seed's choice too: some mistakes show where they do so rarely.
bool goes_on() {
    locked scope;
    return scope.world.settings.mode != schedule::exhaustive &&
           decide(scope.world, 8) >= scope.world.restlessness;
}

/// Hands the turn to one of those that may go on; false: there is none but (perhaps) the caller.
bool pass(bool as_stuck) {
    busy_scope const inside;
    std::unique_lock<std::mutex> lock(table->mutex);
    if (as_stuck)
        table->stuck[own_place] = true;
    else
        table->stuck.assign(table->stuck.size(), false);
    if (!as_stuck && goes_on())
        return true;
    std::vector<std::size_t> able;
    for (std::size_t place = 0; place < table->ended.size(); ++place)
        if (!table->ended[place] && !table->stuck[place])
            able.push_back(place);
    if (able.empty()) {
        table->stuck.assign(table->stuck.size(), false);
        return false;
    }
    std::size_t const next = able[draw(able.size())];
    if (next == own_place)
        return true;
    table->hand_to(next);
    table->mine[own_place].wait(lock, [] { return table->turn == own_place; });
    return true;
}

} // namespace

void switch_point() {
    if (hook_of_test != nullptr)
        hook_of_test();
    else if (table != nullptr && !busy)
        pass(false);
}

bool step_aside(bool& stuck) {
    stuck = false;
    if (table == nullptr || busy)
        return false;
    stuck = !pass(true);
    return true;
}

} // namespace simulated_device::inside

namespace simulated_device {

void yield() {
    inside::switch_point();
}

void at_switch_points(void (*hook)()) {
    inside::hook_of_test = hook;
}

#ifndef SIMULATED_CUDA_FREE_THREADS
namespace {

/// Keeps the calling thread on the processor numbered `processor`; a number below 0 leaves it free.
void stay_on(int processor) {
    if (processor < 0)
        return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(processor), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one); // refused: the turns take longer
}

} // namespace
#endif

void run_threads(std::vector<std::function<void()>> const& functions) {
#ifdef SIMULATED_CUDA_FREE_THREADS
    std::vector<std::thread> threads;
    for (auto const& function : functions)
        threads.emplace_back(function);
    for (std::thread& thread : threads)
        thread.join();
#else
    if (functions.empty())
        return;
    inside::turn_table turns(functions.size());
    turns.turn = inside::draw(functions.size());
    // One runs at a time: on one processor a turn is handed over in a third of the time.
    int const processor = sched_getcpu();
    std::vector<std::thread> threads;
    for (std::size_t place = 0; place < functions.size(); ++place)
        threads.emplace_back([&turns, &functions, place, processor] {
            stay_on(processor);
            {
                inside::busy_scope const inside_it;
                std::unique_lock<std::mutex> lock(turns.mutex);
                turns.mine[place].wait(lock, [&] { return turns.turn == place; });
            }
            inside::table = &turns;
            inside::own_place = place;
            functions[place]();
            inside::table = nullptr;
            inside::busy_scope const inside_it;
            std::unique_lock<std::mutex> lock(turns.mutex);
            turns.ended[place] = true;
            turns.stuck.assign(turns.stuck.size(), false);
            std::vector<std::size_t> able;
            for (std::size_t other = 0; other < turns.ended.size(); ++other)
                if (!turns.ended[other])
                    able.push_back(other);
            if (!able.empty())
                turns.hand_to(able[inside::draw(able.size())]);
        });
    for (std::thread& thread : threads)
        thread.join();
#endif
}

} // namespace simulated_device

#ifndef SIMULATED_CUDA_FREE_THREADS

extern "C" int sched_yield() noexcept {
    static thread_local unsigned in_vain = 0;
    bool stuck = false;
    if (!simulated_device::inside::step_aside(stuck))
        return static_cast<int>(syscall(SYS_sched_yield));
    in_vain = stuck ? in_vain + 1 : 0;
    if (in_vain > 100000) {
        std::fputs("simulated device: a thread spins for ever and all others wait: a deadlock\n", stderr);
        std::abort();
    }
    return 0;
}

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    using function = int (*)(pthread_mutex_t*);
    static function const real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    if (simulated_device::inside::table == nullptr || simulated_device::inside::busy)
        return real(mutex);
    // A holder may have unlocked, and waited for another mutex, without a call in between: all seem to wait, and one can
    // go on. So it is a deadlock only where nobody could again and again.
    for (unsigned in_vain = 0;;) {
        if (pthread_mutex_trylock(mutex) == 0)
            return 0;
        bool stuck = false;
        if (simulated_device::inside::step_aside(stuck) && (!stuck || ++in_vain < 1000))
            continue;
        timespec limit{};
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 20;
        if (pthread_mutex_timedlock(mutex, &limit) == 0)
            return 0;
        std::fputs("simulated device: a thread waits for a mutex and all others wait: a deadlock\n", stderr);
        std::abort();
    }
}

#endif
