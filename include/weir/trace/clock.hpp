// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// When did something happen, at a cost of a few nanoseconds?
//
// By the processor's own counter, if it counts at one rate on all cores ('invariant' in CPUID, and always on 64-bit Arm);
// otherwise by the system's steady clock. The counter's unit is the processor's, so a recording holds two moments at which
// both were read, and the reader works out how long a tick is.
//
// invariant: ticks of one thread do not fall. If a thread saw what another one did, its ticks are at least those that the other
//            one had read before.
// cost:      about 10 ns; 25 ns where the system's clock is asked.
// not for:   tests: none depends on what a clock says.

#include <cstdint>
#include <ctime>

namespace weir {
inline namespace v0 {
namespace trace {

/// Nanoseconds of one of the system's clocks.
inline std::uint64_t nanoseconds_of(clockid_t which) noexcept {
    timespec now{};
    clock_gettime(which, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Whether the processor's counter may be used for time.
inline bool has_invariant_counter() noexcept {
#if defined(__x86_64__)
    constexpr std::uint32_t power_management = 0x80000007u; // its bit 8 of edx: the counter never changes its rate
    std::uint32_t eax = 0x80000000u, ecx = 0, edx = 0;
    __asm__ volatile("cpuid" : "+a"(eax), "+c"(ecx), "=d"(edx) : : "ebx");
    bool const is_known = eax >= power_management;
    eax = power_management;
    ecx = 0;
    __asm__ volatile("cpuid" : "+a"(eax), "+c"(ecx), "=d"(edx) : : "ebx");
    return is_known && (edx >> 8 & 1) != 0;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

/// Reads the time in ticks. Any thread.
class clock {
public:
    /// `counter`: read the processor's counter; it must be invariant.
    explicit clock(bool counter = has_invariant_counter()) noexcept : counter_(counter) {}

    /// Now. Not before what the thread did and saw so far.
    std::uint64_t ticks() const noexcept {
#if defined(__x86_64__)
        if (counter_) {
            std::uint32_t low, high;
            __asm__ volatile("rdtscp" : "=a"(low), "=d"(high) : : "ecx", "memory"); // waits for what stands before it
            return std::uint64_t{high} << 32 | low;
        }
#elif defined(__aarch64__)
        if (counter_) {
            std::uint64_t now;
            __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(now) : : "memory");
            return now;
        }
#endif
        return nanoseconds_of(CLOCK_MONOTONIC);
    }

private:
    bool counter_;
};

/// One moment on all clocks.
struct moment {
    std::uint64_t ticks = 0;
    std::uint64_t steady_ns = 0;
    std::uint64_t wall_ns = 0; ///< since 1970
};

inline moment now(clock const& of) noexcept {
    return {of.ticks(), trace::nanoseconds_of(CLOCK_MONOTONIC), trace::nanoseconds_of(CLOCK_REALTIME)};
}

/// How many nanoseconds a tick takes, from two moments of one recording; 1 if no tick lies between them.
inline double ns_per_tick(moment const& first, moment const& last) noexcept {
    if (last.ticks <= first.ticks || last.steady_ns <= first.steady_ns)
        return 1;
    return static_cast<double>(last.steady_ns - first.steady_ns) / static_cast<double>(last.ticks - first.ticks);
}

} // namespace trace
} // namespace v0
} // namespace weir
