// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <atomic>
#include <stdexcept>

using namespace scene;
using weir::staging::shared_work;

namespace {

constexpr std::size_t share = copy_threads::share_bytes;

/// Counts how often each share is done; throws at one of them.
struct counted : shared_work {
    counted(std::size_t size, std::size_t throw_at = SIZE_MAX) : times(size / share + 1), bad(throw_at) {
        what = this;
        bytes = size;
        run = [](void* self, std::size_t begin, std::size_t end) {
            counted& work = *static_cast<counted*>(self);
            CHECK(end <= work.bytes);
            CHECK(begin < end);
            work.sum += end - begin;
            ++work.times[begin / share];
            if (begin / share == work.bad)
                throw std::runtime_error("share");
        };
    }
    std::vector<std::atomic<int>> times;
    std::atomic<std::size_t> sum{0};
    std::size_t bad;
};

} // namespace

TEST_CASE("copy_threads: copies every byte, however many threads there are") {
    for (unsigned const count : {0u, 1u, 4u}) {
        copy_threads threads(count);
        CHECK(threads.count() == count);
        for (std::size_t const bytes : {std::size_t{0}, std::size_t{1}, share, share + 1, 9 * share + 100}) {
            octets const from = counting(bytes);
            octets to(bytes + 1, 0);
            threads.copy(to.data(), from.data(), bytes);
            CHECK(std::equal(from.begin(), from.end(), to.begin()));
            CHECK(to.back() == 0);
        }
        CHECK_THROWS_AS(threads.copy(nullptr, "x", 1), weir::usage_error);
        CHECK_THROWS_AS(threads.copy(&threads, nullptr, 1), weir::usage_error);
    }
}

TEST_CASE("copy_threads: each share is done once, and several pieces of work may be under way") {
    copy_threads threads(3);
    for (int round = 0; round != 50; ++round) {
        counted a(5 * share + 1), b(1), none(0), c(12 * share);
        for (int const starts : {1, 2}) { // the same work may be started again
            for (counted* each : {&a, &b, &none, &c})
                threads.start(*each);
            for (counted* each : {&c, &none, &a, &b}) { // in another order
                threads.finish(*each);
                CHECK(each->sum == static_cast<std::size_t>(starts) * each->bytes);
                for (std::size_t i = 0; i * share < each->bytes; ++i)
                    CHECK(each->times[i] == starts);
            }
        }
    }
}

TEST_CASE("copy_threads: who waits for another's last share begins with the next work meanwhile") {
    copy_threads threads(1);
    struct meeting {
        std::atomic<bool> helper_is_in{false}, next_was_done{false}, met{false};
    } all;
    shared_work slow, next;
    slow.what = next.what = &all;
    slow.bytes = next.bytes = 1;
    slow.run = [](void* what, std::size_t, std::size_t) {
        meeting& in = *static_cast<meeting*>(what);
        in.helper_is_in = true;
        for (long tries = 0; tries != 10'000'000 && !in.next_was_done; ++tries)
            std::this_thread::yield();
        in.met = in.next_was_done.load();
    };
    next.run = [](void* what, std::size_t, std::size_t) { static_cast<meeting*>(what)->next_was_done = true; };
    threads.start(slow);
    while (!all.helper_is_in)
        std::this_thread::yield();
    threads.start(next);
    threads.finish(slow);
    CHECK(all.met);
    threads.finish(next);
}

TEST_CASE("copy_threads: what a share throws, 'finish' throws, when all is done") {
    for (unsigned const count : {0u, 3u}) {
        copy_threads threads(count);
        counted work(8 * share, 2), next(3 * share);
        threads.start(work);
        threads.start(next);
        CHECK_THROWS_WITH_AS(threads.finish(work), "share", std::runtime_error);
        CHECK(work.sum == work.bytes);
        threads.finish(next);
        CHECK(next.sum == next.bytes);
    }
}

TEST_CASE("copy_threads: many callers share the threads") {
    copy_threads threads(2);
    std::vector<std::thread> callers;
    std::vector<octets> to(4);
    for (unsigned i = 0; i != 4; ++i)
        callers.emplace_back([&, i] {
            for (unsigned round = 0; round != 20; ++round) {
                octets const from = counting(3 * share + i, i + round);
                to[i].assign(from.size(), 0);
                threads.copy(to[i].data(), from.data(), from.size());
                if (to[i] != from)
                    to[i].clear();
            }
        });
    for (std::thread& each : callers)
        each.join();
    for (unsigned i = 0; i != 4; ++i)
        CHECK(to[i].size() == 3 * share + i);
}
