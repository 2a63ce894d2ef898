// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Host memory that runs out when a test says so.
//
// Replaces operator new for the program. 'each_failure' runs an action again and again on fresh copies of a
// scene, and each time lets the next allocation of host memory fail, until a run needs fewer than that. CUDA itself finds
// memory: what the simulated device asks for while one of its calls runs is not counted.
//
// The definitions here are weak, since several files of one program include this header. The sanitizers' own come
// first where they are weak as well, hence the file operator_new.cpp in the folders that use this.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#define SUPPORT_KEEPS_OPERATOR_NEW 1 // the thread sanitizer brings its own and admits no other
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SUPPORT_KEEPS_OPERATOR_NEW 1
#endif
#endif

#ifdef WEIR_SIMULATED_CUDA
namespace simulated_device {
bool in_cuda_call() noexcept;
}
#endif

namespace support {

#ifdef SUPPORT_KEEPS_OPERATOR_NEW
inline constexpr bool host_memory_can_fail = false;
#else
inline constexpr bool host_memory_can_fail = true;
#endif

/// How many allocations of this thread still succeed; negative: all.
inline thread_local long allocations_left = -1;

/// Lets the allocations of this thread fail after 'successes' more, while it lives.
class failing_new {
public:
    explicit failing_new(long successes) { allocations_left = successes; }
    failing_new(failing_new const&) = delete;
    failing_new& operator=(failing_new const&) = delete;
    ~failing_new() { allocations_left = -1; }
};

/// Allocations of this thread succeed while it lives: for what a test itself notes in between.
class enough_memory {
public:
    enough_memory() : left_(std::exchange(allocations_left, -1)) {}
    enough_memory(enough_memory const&) = delete;
    enough_memory& operator=(enough_memory const&) = delete;
    ~enough_memory() { allocations_left = left_; }

private:
    long left_;
};

/// For k = 0, 1, ...: makes a scene, lets its k-th allocation in action(scene) fail, and calls check(scene) when it
/// did. Ends when the action succeeds; answers how often it failed.
template <class MakeScene, class Action, class Check>
long each_failure(MakeScene make_scene, Action action, Check check) {
    for (long failures = 0;; ++failures) {
        auto scene = make_scene();
        try {
            failing_new const fails(failures);
            action(scene);
            return failures;
        } catch (std::bad_alloc const&) {
        }
        check(scene);
    }
}

inline void* counted_new(std::size_t bytes) {
#ifdef WEIR_SIMULATED_CUDA
    bool const counts = allocations_left >= 0 && !simulated_device::in_cuda_call();
#else
    bool const counts = allocations_left >= 0;
#endif
    if (counts && allocations_left == 0)
        throw std::bad_alloc();
    if (counts)
        --allocations_left;
    if (void* const p = std::malloc(bytes != 0 ? bytes : 1))
        return p;
    throw std::bad_alloc();
}

} // namespace support

#ifndef SUPPORT_KEEPS_OPERATOR_NEW
#ifndef SUPPORT_OPERATOR_NEW
#define SUPPORT_OPERATOR_NEW __attribute__((weak))
#endif

SUPPORT_OPERATOR_NEW void* operator new(std::size_t bytes) {
    return support::counted_new(bytes);
}
SUPPORT_OPERATOR_NEW void operator delete(void* p) noexcept {
    std::free(p);
}
SUPPORT_OPERATOR_NEW void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
#endif
