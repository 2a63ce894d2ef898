// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do threads write to one set of figures without meeting?
//
// Each figure is cut into parts, the shards. A shard has a lock and a cache line of its own, and a thread uses the shard that
// its number hashes to (atomic.hpp's 'this_thread': no thread-local variable, no system call). Any shard does for any call, so
// a thread that finds its own one locked takes the next that is free. Whoever needs all parts at rest locks all of them.
//
// invariant: at most one thread is in a shard. A thread holds one shard, or takes all of them in order of their number while
//            it holds none: so there is no deadlock.
// order:     what was written in a shard is seen by whoever locks it next.
// cost:      one exchange and one store a call, as spin_lock; 64 bytes a shard. All of them: about 0.5 us if nobody is in one.
// not for:   figures that are read more often than they are written.

#include <cstddef>
#include <cstdint>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>

namespace weir {
inline namespace v0 {
namespace base {

/// `Shard`: has a member 'spin_lock lock', and figures that this guards.
template <class Shard>
class shards {
    struct alignas(64) line : Shard {};

public:
    shards() noexcept = default;
    shards(shards const&) = delete;
    shards& operator=(shards const&) = delete;

    /// A shard, locked: the calling thread's if no other thread is in it.
    [[gnu::always_inline]] locked<Shard> mine() noexcept {
        constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u; // multiplicative hashing (Knuth 6.4)
        std::uint64_t const mixed = (this_thread() * golden_ratio) >> 32;
        auto const at = static_cast<std::size_t>((mixed * thread_shards) >> 32);
        Shard* const own = &lines_[at];
        return locked<Shard>(own->lock.try_lock() ? *own : another(at), locked<Shard>::already_held);
    }

    /// All shards, locked as long as this lives.
    class [[nodiscard]] all {
    public:
        explicit all(shards& of) noexcept : of_(of) {
            for (Shard& each : of_)
                each.lock.lock();
        }
        all(all const&) = delete;
        all& operator=(all const&) = delete;
        ~all() {
            for (Shard& each : of_)
                each.lock.unlock();
        }

    private:
        shards& of_;
    };

    line* begin() noexcept { return lines_; }
    line* end() noexcept { return lines_ + thread_shards; }
    line const* begin() const noexcept { return lines_; }
    line const* end() const noexcept { return lines_ + thread_shards; }

private:
    // Not inlined, so that the usual path stays short.
    [[gnu::noinline]] Shard& another(std::size_t at) noexcept {
        for (unsigned turns = 0;; spin(turns++))
            for (std::size_t i = 0; i < thread_shards; ++i) {
                at = at + 1 == thread_shards ? 0 : at + 1;
                if (lines_[at].lock.try_lock())
                    return lines_[at];
            }
    }

    line lines_[thread_shards];
};

} // namespace base
} // namespace v0
} // namespace weir
