// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <doctest/doctest.h>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>
#include <weir/base/threads/spin_lock.hpp>

// That nothing is lost between threads under it: mutex.cpp.
static_assert(sizeof(weir::base::spin_lock) == 1);
static_assert(!std::is_copy_constructible_v<weir::base::spin_lock> && !std::is_copy_assignable_v<weir::base::spin_lock>);

TEST_CASE("spin_lock: is held by one holder at a time") {
    weir::base::spin_lock lock;
    CHECK(lock.try_lock());
    CHECK_FALSE(lock.try_lock());
    CHECK_FALSE(lock.try_lock());
    lock.unlock();
    CHECK(lock.try_lock());
    lock.unlock();
    lock.lock();
    CHECK_FALSE(lock.try_lock());
    lock.unlock();
}

TEST_CASE("spin_lock: works under the standard's guards") {
    weir::base::spin_lock first, second;
    {
        std::scoped_lock const both(first, second);
        CHECK_FALSE(first.try_lock());
        CHECK_FALSE(second.try_lock());
    }
    std::unique_lock<weir::base::spin_lock> one(first, std::try_to_lock);
    CHECK(one.owns_lock());
    std::unique_lock<weir::base::spin_lock> const other(first, std::try_to_lock);
    CHECK_FALSE(other.owns_lock());
}

TEST_CASE("spin_lock: a holder that lost its core gets one back from those who wait") {
    weir::base::spin_lock lock;
    std::atomic<int> waiting{0};
    std::atomic<int> passed{0};
    lock.lock();
    std::vector<std::thread> crew;
    for (int t = 0; t < 3; ++t)
        crew.emplace_back([&] {
            waiting.fetch_add(1);
            lock.lock();
            passed.fetch_add(1);
            lock.unlock();
        });
    while (waiting.load() < 3)
        std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) // the waiters spin well past the point where they yield
        std::this_thread::yield();
    CHECK(passed.load() == 0);
    lock.unlock();
    for (std::thread& each : crew)
        each.join();
    CHECK(passed.load() == 3);
}

TEST_CASE("spin_lock: try_lock between threads admits one") {
    weir::base::spin_lock lock;
    int plain = 0;
    std::atomic<int> entered{0};
    std::vector<std::thread> crew;
    for (int t = 0; t < 4; ++t)
        crew.emplace_back([&] {
            for (int i = 0; i < 5000; ++i)
                if (lock.try_lock()) {
                    ++plain;
                    entered.fetch_add(1);
                    lock.unlock();
                }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(plain == entered.load());
    CHECK(plain > 0);
}

TEST_CASE("spin_lock: no_lock is a lock that is always free") {
    weir::base::no_lock lock;
    std::lock_guard<weir::base::no_lock> const held(lock);
    CHECK(lock.try_lock());
    CHECK(lock.try_lock());
    lock.unlock();
}
