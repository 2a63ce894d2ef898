// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// weir's atomics and mutexes where tests decide who goes on: see turns.hpp. Every file here that includes weir defines
//
//     #define WEIR_ATOMIC_HEADER <interleavings/atomic.hpp>
//
// before that. An operation is a step; a wait gives the turn away. An atomic knows whether it was destroyed, so that an
// object that is freed too early is noticed even where no sanitizer looks.

#include "turns.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weir {
inline namespace v0 {
namespace base {

using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

template <class T>
class atomic {
public:
    constexpr atomic(T value) noexcept : value_(value) {}
    atomic(atomic const&) = delete;
    atomic& operator=(atomic const&) = delete;
    ~atomic() { life_ = dead; }

    T load(memory_order) const noexcept {
        before("load");
        interleavings::inside::saw(this, bits(value_));
        return value_;
    }
    void store(T value, memory_order) noexcept {
        before("store");
        change(value);
    }
    T exchange(T value, memory_order) noexcept {
        before("exchange");
        return change(value);
    }
    T fetch_add(T value, memory_order) noexcept {
        before("add");
        return change(static_cast<T>(value_ + value));
    }
    T fetch_sub(T value, memory_order) noexcept {
        before("subtract");
        return change(static_cast<T>(value_ - value));
    }
    bool compare_exchange_weak(T& expected, T desired, memory_order) noexcept {
        before("compare and exchange");
        return !interleavings::inside::fails_spuriously() && compare(expected, desired);
    }

private:
    static constexpr std::uint32_t alive = 0xA11CE;
    static constexpr std::uint32_t dead = 0xDEAD;

    void before(char const* what) const noexcept {
        interleavings::inside::step(what, this);
        if (life_ != alive)
            interleavings::inside::fail(std::string("an atomic that is destroyed is used: ") + what);
    }
    T change(T value) noexcept {
        T const former = value_;
        value_ = value;
        if (former != value)
            interleavings::inside::wrote(this, bits(value)); // this may be gone by now: others went on
        else
            interleavings::inside::saw(this, bits(value));
        return former;
    }
    bool compare(T& expected, T desired) noexcept {
        if (value_ != expected) {
            expected = value_;
            interleavings::inside::saw(this, bits(value_));
            return false;
        }
        change(desired);
        return true;
    }
    static std::uint64_t bits(T value) noexcept {
        if constexpr (std::is_pointer_v<T>)
            return reinterpret_cast<std::uintptr_t>(value);
        else
            return static_cast<std::uint64_t>(value);
    }

    T value_;
    std::uint32_t volatile life_ = alive; // volatile: the last store of a life is no use to the compiler
};

class mutex {
public:
    constexpr mutex() noexcept = default;
    mutex(mutex const&) = delete;
    mutex& operator=(mutex const&) = delete;
    ~mutex() = default;

    void lock() noexcept {
        interleavings::inside::step("lock", this);
        while (held_)
            interleavings::inside::wait_for(this, "a mutex");
        held_ = true;
    }
    [[nodiscard]] bool try_lock() noexcept {
        interleavings::inside::step("try to lock", this);
        if (held_)
            return false;
        held_ = true;
        return true;
    }
    void unlock() noexcept {
        interleavings::inside::step("unlock", this);
        held_ = false;
        interleavings::inside::wrote(this, 0);
    }

private:
    bool held_ = false;
};

inline constexpr std::size_t thread_shards = 3; // few, so that whoever takes all of them takes few steps

inline std::uintptr_t this_thread() noexcept {
    return interleavings::inside::present_thread();
}

inline void spin(unsigned) noexcept {
    interleavings::inside::wait_for_write_of_last_read();
}

} // namespace base
} // namespace v0
} // namespace weir
