// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>

static_assert(!std::is_copy_constructible_v<weir::base::mutex> && !std::is_copy_assignable_v<weir::base::mutex>);
static_assert(!std::is_copy_constructible_v<weir::base::lock_guard<weir::base::mutex>>);
static_assert(std::is_nothrow_default_constructible_v<weir::base::mutex>);

namespace {

// Whether another thread finds the lock free. The same thread must not ask: a mutex is not recursive.
template <class Lock>
bool free_for_others(Lock& lock) {
    bool free = false;
    std::thread([&] {
        free = lock.try_lock();
        if (free)
            lock.unlock();
    }).join();
    return free;
}

} // namespace

TEST_CASE("mutex: is held by one holder at a time") {
    weir::base::mutex lock;
    CHECK(free_for_others(lock));
    lock.lock();
    CHECK_FALSE(free_for_others(lock));
    lock.unlock();
    CHECK(free_for_others(lock));
    CHECK(lock.try_lock());
    CHECK_FALSE(free_for_others(lock));
    lock.unlock();
    CHECK(free_for_others(lock));
}

TEST_CASE("mutex: works under the standard's guards") {
    weir::base::mutex first, second;
    {
        std::scoped_lock const both(first, second);
        CHECK_FALSE(free_for_others(first));
        CHECK_FALSE(free_for_others(second));
    }
    std::unique_lock<weir::base::mutex> one(first, std::try_to_lock);
    CHECK(one.owns_lock());
    one.unlock();
    CHECK(free_for_others(first));
}

TEST_CASE_TEMPLATE("mutex: nothing is lost between threads under any lock", Lock, weir::base::mutex, weir::base::spin_lock) {
    Lock lock;
    long plain = 0; // no atomic: the lock orders every access, and the thread sanitizer sees whether it does
    std::vector<std::thread> crew;
    for (int t = 0; t < 4; ++t)
        crew.emplace_back([&] {
            for (int i = 0; i < 20000; ++i) {
                weir::base::lock_guard<Lock> const held(lock);
                ++plain;
            }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(plain == 80000);
}

TEST_CASE("mutex: a waiter goes on when the holder is done") {
    weir::base::mutex lock;
    bool done = false;
    lock.lock();
    std::thread waiter([&] {
        weir::base::lock_guard<weir::base::mutex> const held(lock);
        CHECK(done);
    });
    for (int i = 0; i < 1000; ++i)
        std::this_thread::yield();
    done = true;
    lock.unlock();
    waiter.join();
    CHECK(free_for_others(lock));
}

TEST_CASE_TEMPLATE("mutex: lock_guard holds any lock to the end of its scope", Lock, weir::base::mutex,
                   weir::base::spin_lock) {
    Lock lock;
    {
        weir::base::lock_guard<Lock> const held(lock);
        CHECK_FALSE(free_for_others(lock));
    }
    CHECK(free_for_others(lock));
    try {
        weir::base::lock_guard<Lock> const held(lock);
        throw 1;
    } catch (int) { // and so does the end by an exception
    }
    CHECK(free_for_others(lock));
}

TEST_CASE("mutex: lock_guard of a no_lock costs nothing and excludes nobody") {
    weir::base::no_lock lock;
    weir::base::lock_guard<weir::base::no_lock> const held(lock);
    weir::base::lock_guard<weir::base::no_lock> const also(lock);
    CHECK(lock.try_lock());
}
