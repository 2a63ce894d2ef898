// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The explorer itself: that it runs every schedule it speaks of, finds what small programs do wrong, and can do it again.

#include "explore.hpp"

#include <set>
#include <stdexcept>
#include <string>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define INTERLEAVINGS_LOOKS_FOR_LEAKS
#endif
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define INTERLEAVINGS_LOOKS_FOR_LEAKS
#endif

using interleavings::choose;
using interleavings::outcome;
using interleavings::plan;
using interleavings::require;
using interleavings::threads;
using interleavings::yield;

namespace {

// A schedule that fails is abandoned with what it holds, and here most do.
struct leaks_expected {
#ifdef INTERLEAVINGS_LOOKS_FOR_LEAKS
    leaks_expected() { __lsan_disable(); }
    ~leaks_expected() { __lsan_enable(); }
#else
    leaks_expected() {}
#endif
};
outcome tried(std::function<void()> const& program, plan const& what = {}) {
    leaks_expected const here;
    return interleavings::search(program, what);
}
outcome again_as(std::function<void()> const& program, std::string const& schedule) {
    leaks_expected const here;
    return interleavings::replay(program, schedule);
}

constexpr plan systematic(int preemptions) {
    plan what;
    what.preemptions = preemptions;
    what.random = 0;
    return what;
}

plan random(std::uint64_t schedules) {
    plan what;
    what.preemptions = -1;
    what.random = schedules;
    return what;
}

// Schedules from where a thread has the turn and 'mine' steps before it, and another one has 'others'.
std::uint64_t schedules(int mine, int others, int preemptions) {
    if (mine == 0)
        return 1; // it ends, and the other goes on alone
    return schedules(mine - 1, others, preemptions) +
           (preemptions > 0 ? schedules(others, mine - 1, preemptions - 1) : 0);
}

// Adds one to a counter as an addition that is split in two would.
void add_badly(weir::base::atomic<int>& sum) {
    int const before = sum.load(std::memory_order_relaxed);
    sum.store(before + 1, std::memory_order_relaxed);
}

void lost_update() {
    weir::base::atomic<int> sum{0};
    threads([&] { add_badly(sum); }, [&] { add_badly(sum); });
    require(sum.load(std::memory_order_relaxed) == 2, "an addition is lost");
}

} // namespace

TEST_CASE("turns: every schedule with so many preemptions runs, and each once" * doctest::skip(interleavings::left_out)) {
    for (int preemptions = 0; preemptions <= 4; ++preemptions) {
        CAPTURE(preemptions);
        std::set<std::string> orders;
        outcome const found = tried(
            [&] {
                std::string order;
                threads([&] { yield(), order += 'a', yield(), order += 'b'; },
                        [&] { yield(), order += 'x', yield(), order += 'y'; });
                orders.insert(order);
            },
            systematic(preemptions));
        CHECK(found.failure.empty());
        CHECK(found.systematic == 2 * schedules(2, 2, preemptions)); // either may begin
        CHECK(orders.size() == (preemptions == 0 ? 2 : preemptions == 1 ? 4 : 6));
    }
}

TEST_CASE("turns: a lost update takes one preemption, and its schedule can be run again" * doctest::skip(interleavings::left_out)) {
    CHECK(tried(lost_update, systematic(0)).failure.empty());
    outcome const found = tried(lost_update, systematic(2));
    CHECK(found.failure == "an addition is lost");
    CHECK(found.systematic <= 4); // none of two preemptions was needed
    outcome const again = again_as(lost_update, found.schedule);
    CHECK(again.failure == found.failure);
    CHECK(again.schedule == found.schedule);
    CHECK(again.trace.find("store a0 becomes 1") != std::string::npos);
    CHECK(again_as(lost_update, "0*3").failure.empty());
    CHECK(tried(lost_update, random(100)).failure == found.failure);
}

TEST_CASE("turns: a deadlock is told with who waits for what" * doctest::skip(interleavings::left_out)) {
    auto const program = [] {
        weir::base::mutex a;
        weir::base::spin_lock b;
        auto const both = [](auto& first, auto& second) {
            first.lock();
            second.lock();
            second.unlock();
            first.unlock();
        };
        threads([&] { both(a, b); }, [&] { both(b, a); });
    };
    CHECK(tried(program, systematic(0)).failure.empty());
    outcome const found = tried(program, systematic(1));
    CHECK(found.failure.find("a deadlock: thread 0 waits for ") == 0);
    CHECK(found.failure.find("thread 1 waits for ") != std::string::npos);
    CHECK(again_as(program, found.schedule).failure.find("a deadlock: ") == 0);
}

TEST_CASE("turns: a wake-up that is lost ends in a deadlock" * doctest::skip(interleavings::left_out)) {
    auto const program = [] {
        weir::base::atomic<int> bell{0}; // rung by a change, which a sleeper must not overwrite
        threads(
            [&] {
                bell.store(1, std::memory_order_release);
                for (unsigned turns = 0; bell.load(std::memory_order_acquire) != 2; ++turns)
                    weir::base::spin(turns);
            },
            [&] { bell.store(2, std::memory_order_release); });
    };
    CHECK(tried(program, systematic(2)).failure.find("a deadlock: thread 0 waits for an atomic to change") == 0);
}

TEST_CASE("turns: two threads that step aside for one another for ever are a livelock" * doctest::skip(interleavings::left_out)) {
    auto const program = [] {
        weir::base::atomic<int> turn{0};
        threads([&] { while (turn.exchange(1, std::memory_order_relaxed) != 2) yield(); },
                [&] { while (turn.exchange(1, std::memory_order_relaxed) != 2) yield(); });
    };
    plan short_of_patience = systematic(0);
    short_of_patience.most_steps = 100;
    CHECK(tried(program, short_of_patience).failure == "a livelock: no end after 100 steps");
}

TEST_CASE("turns: what a thread throws, what a check sees and what a program chooses" * doctest::skip(interleavings::left_out)) {
    CHECK(tried([] { threads([] { throw std::runtime_error("no"); }, [] {}); }).failure == "a thread threw: no");
    CHECK(tried([] { throw 1; }).failure == "the program threw: no std::exception");
    outcome const seen = tried([] {
        weir::base::atomic<int> sum{0};
        interleavings::always([&] { require(sum.load(std::memory_order_relaxed) < 2, "two"); });
        threads([&] { sum.fetch_add(1, std::memory_order_relaxed); yield(); },
                [&] { sum.fetch_add(1, std::memory_order_relaxed); yield(); });
    });
    CHECK(seen.failure == "two");
    std::set<std::size_t> chosen;
    CHECK(tried([&] { chosen.insert(choose(5)); }, systematic(0)).systematic == 5);
    CHECK(chosen.size() == 5);
    outcome const third = tried([] { require(choose(5) != 3, "three"); });
    CHECK(third.schedule == "=3");
    CHECK(again_as([] { require(choose(5) != 3, "three"); }, "=3").failure == "three");
    std::size_t runs = 0;
    CHECK(tried([&] { choose(++runs % 2 + 2), choose(2); }).failure.find("the program is not the same") == 0);
}

TEST_CASE("turns: an exception that is handled stays its thread's own" * doctest::skip(interleavings::left_out)) {
    auto const program = [] {
        auto const handle = [](int which) {
            try {
                throw which;
            } catch (int caught) {
                yield();
                try {
                    throw;
                } catch (int again) {
                    yield();
                    require(again == which && caught == which, "another thread's exception");
                }
            }
        };
        threads([&] { handle(1); }, [&] { handle(2); }, [&] { handle(3); });
    };
    CHECK(tried(program, systematic(2)).failure.empty());
    CHECK(tried(program, random(1000)).failure.empty());
}

TEST_CASE("turns: an atomic that is used after its end is noticed" * doctest::skip(interleavings::left_out)) {
    outcome const found = tried([] {
        alignas(weir::base::atomic<int>) static unsigned char place[sizeof(weir::base::atomic<int>)];
        auto* const sum = new (place) weir::base::atomic<int>(0);
        using number = weir::base::atomic<int>;
        threads([&] { sum->fetch_add(1, std::memory_order_relaxed); }, [&] { yield(), sum->~number(); });
    });
    CHECK(found.failure == "an atomic that is destroyed is used: add");
}
