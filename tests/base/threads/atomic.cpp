// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <initializer_list>
#include <thread>
#include <type_traits>
#include <weir/base/threads/atomic.hpp>

using weir::base::memory_order_acq_rel;
using weir::base::memory_order_acquire;
using weir::base::memory_order_relaxed;
using weir::base::memory_order_release;

namespace {

template <class T>
constexpr bool is_as_the_standards = sizeof(weir::base::atomic<T>) == sizeof(T) && alignof(weir::base::atomic<T>) == alignof(std::atomic<T>) &&
                                     std::is_standard_layout_v<weir::base::atomic<T>> &&
                                     std::is_trivially_destructible_v<weir::base::atomic<T>> &&
                                     !std::is_copy_constructible_v<weir::base::atomic<T>> && !std::is_copy_assignable_v<weir::base::atomic<T>>;

static_assert(is_as_the_standards<std::uint64_t> && is_as_the_standards<std::int64_t> && is_as_the_standards<std::uint32_t> &&
              is_as_the_standards<void const*> && is_as_the_standards<bool>);

} // namespace

TEST_CASE("atomic: each operation reads and writes as std::atomic's does") {
    weir::base::atomic<std::uint64_t> const fixed{7};
    CHECK(fixed.load(memory_order_relaxed) == 7);

    weir::base::atomic<std::uint64_t> number{1};
    number.store(5, memory_order_release);
    CHECK(number.load(memory_order_acquire) == 5);
    CHECK(number.exchange(9, memory_order_acq_rel) == 5);
    CHECK(number.fetch_add(3, memory_order_relaxed) == 9);
    CHECK(number.fetch_sub(13, memory_order_relaxed) == 12);
    CHECK(number.load(memory_order_relaxed) == UINT64_MAX); // around zero

    std::uint64_t expected = 4;
    CHECK_FALSE(number.compare_exchange_weak(expected, 1, memory_order_acq_rel));
    CHECK(expected == UINT64_MAX);
    CHECK(number.load(memory_order_relaxed) == UINT64_MAX);
    while (!number.compare_exchange_weak(expected, 1, memory_order_acq_rel)) // may fail for no reason
        CHECK(expected == UINT64_MAX);
    CHECK(expected == UINT64_MAX);
    CHECK(number.load(memory_order_relaxed) == 1);

    int one = 0;
    int other = 0;
    weir::base::atomic<int*> pointer{&one};
    CHECK(pointer.exchange(&other, memory_order_acq_rel) == &one);
    CHECK(pointer.load(memory_order_acquire) == &other);

    weir::base::atomic<bool> flag{false};
    CHECK_FALSE(flag.exchange(true, memory_order_acquire));
    CHECK(flag.load(memory_order_relaxed));
}

TEST_CASE("atomic: nothing that threads add, take, exchange or compare is lost") {
    constexpr int threads = 4;
    constexpr std::uint64_t turns = 20'000;
    // Where they share a core, a thread is seldom stopped just where it matters: they go on until they met this often.
    constexpr int enough = 200;
    weir::base::atomic<std::uint64_t> added{0};
    weir::base::atomic<std::uint64_t> taken{0};
    weir::base::atomic<std::uint64_t> compared{0};
    weir::base::atomic<std::uint64_t> passed_on{0}; // each thread puts its own and adds up what it finds
    std::uint64_t found[threads] = {};
    std::uint64_t done[threads] = {};
    std::atomic<int> met{0}; // the standard's: what is tested here does not say how long
    weir::base::atomic<int> ready{0};
    std::thread crew[threads];
    for (int t = 0; t < threads; ++t)
        crew[t] = std::thread([&, t] {
            ready.fetch_add(1, memory_order_relaxed);
            for (unsigned spins = 0; ready.load(memory_order_relaxed) != threads; ++spins)
                weir::base::spin(spins);
            std::uint64_t mine = 0;
            for (; done[t] < turns || met < enough; ++done[t]) {
                std::uint64_t const others = added.fetch_add(1, memory_order_relaxed);
                met += done[t] != 0 && others != mine + 1;
                mine = others;
                taken.fetch_sub(1, memory_order_relaxed);
                std::uint64_t seen = compared.load(memory_order_relaxed);
                while (!compared.compare_exchange_weak(seen, seen + 2, memory_order_relaxed)) {
                }
                found[t] += passed_on.exchange(3, memory_order_relaxed);
            }
        });
    std::uint64_t sum = 0, all = 0;
    for (int t = 0; t < threads; ++t) {
        crew[t].join();
        sum += found[t];
        all += done[t];
    }
    CHECK(added.load(memory_order_relaxed) == all);
    CHECK(taken.load(memory_order_relaxed) == UINT64_MAX - all + 1);
    CHECK(compared.load(memory_order_relaxed) == 2 * all);
    CHECK(sum + passed_on.load(memory_order_relaxed) == 3 * all);
}

TEST_CASE("atomic: a loop that spins ends when another thread writes, however long it took") {
    for (unsigned const turns_of_other : {0u, 10u, 1000u}) {
        weir::base::atomic<bool> waiting{false};
        weir::base::atomic<bool> done{false};
        int plain = 0;
        std::thread other([&] {
            for (unsigned turns = 0; !waiting.load(memory_order_acquire); ++turns)
                weir::base::spin(turns);
            for (unsigned turns = 0; turns < turns_of_other; ++turns)
                weir::base::spin(turns);
            plain = 1;
            done.store(true, memory_order_release);
        });
        waiting.store(true, memory_order_release);
        for (unsigned turns = 0; !done.load(memory_order_acquire); ++turns)
            weir::base::spin(turns);
        CHECK(plain == 1);
        other.join();
    }
}
