// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp; that one thread at a time is inside, in every order of threads, in
// tests/interleavings/layer.cpp.

#include <atomic>
#include <cstddef>
#include <doctest/doctest.h>
#include <random>
#include <support/every_schedule.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::KiB;
using weir::on_host;
using weir::layer::synchronized;
using slab_pool = weir::pool<weir::upstream::host, weir::placement::slab<64>, weir::reuse::immediate,
                             weir::growth::fixed<16 * KiB>>;
using any_pool = weir::pool<weir::upstream::host, weir::placement::best_fit<64>, weir::reuse::immediate,
                            weir::growth::fixed<64 * KiB>>;

static_assert(!slab_pool::thread_safe && synchronized<slab_pool>::thread_safe);
static_assert(!synchronized<slab_pool>::stream_ordered);
// Layers above it say so too.
static_assert(weir::layer::statistics<synchronized<slab_pool>>::thread_safe);

TEST_CASE("synchronized: is made from what makes its pool, and from nothing else") {
    using pool = slab_pool;
    using by_reference = weir::layer::synchronized<pool&>;
    CHECK(std::is_constructible_v<synchronized<slab_pool>>);
    CHECK(std::is_constructible_v<by_reference, pool&>);
    CHECK_FALSE(std::is_constructible_v<by_reference, pool const&>);
    CHECK_FALSE(std::is_constructible_v<synchronized<slab_pool>, int*, int, int>);
    CHECK_FALSE(std::is_constructible_v<synchronized<slab_pool>, synchronized<slab_pool>&>);
    CHECK_FALSE(std::is_constructible_v<synchronized<slab_pool>, synchronized<slab_pool>>);
}

TEST_CASE("synchronized: two pools sum up what they are while other threads change it") {
    // The thread sanitizer sees more of this than the answers say.
    using both = weir::layer::fallback<slab_pool, slab_pool>;
    synchronized<both> pool(weir::pool_options{}.name("a").limit(32 * KiB), weir::pool_options{}.name("b").limit(32 * KiB));
    std::thread other([&] {
        for (int i = 0; i < 500; ++i) {
            void* const p = pool.allocate(on_host, 64);
            pool.deallocate(on_host, p, 64);
            pool.trim();
        }
    });
    bool same = true;
    for (int i = 0; i < 500; ++i)
        same = same && pool.limit_bytes() == 64 * KiB && pool.name() == "a, then b" && pool.full_state().name == "a, then b" &&
               pool.device() == weir::any_device;
    other.join();
    CHECK(same);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE_TEMPLATE("synchronized: threads share a pool that is made for one", Pool, slab_pool, any_pool) {
    synchronized<Pool> pool;
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (unsigned t = 1; t <= 4; ++t)
        crew.emplace_back([&, t] {
            std::mt19937_64 draw(t);
            std::vector<unsigned char*> live;
            for (int step = 0; step < 2000; ++step) {
                if (live.size() < 30 && draw() % 2 == 0) {
                    auto* const p = static_cast<unsigned char*>(pool.allocate(on_host, 64));
                    for (int i = 0; i < 64; ++i)
                        p[i] = static_cast<unsigned char>(t);
                    live.push_back(p);
                } else if (!live.empty()) {
                    std::swap(live[draw() % live.size()], live.back());
                    for (int i = 0; i < 64; ++i)
                        if (live.back()[i] != t)
                            wrong.fetch_add(1);
                    pool.deallocate(on_host, live.back(), 64);
                    live.pop_back();
                }
            }
            for (unsigned char* each : live)
                pool.deallocate(on_host, each, 64);
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("synchronized: suspends and resumes with the mutex, while other threads allocate and free") {
    support::every_schedule([] {
        support::scoped_stream const s;
        synchronized<weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::immediate,
                                weir::growth::by_holes<>>>
            pool;
        weir::host_pool keep;
        std::thread other([&] {
            for (int i = 0; i < 200; ++i)
                if (void* const p = pool.try_allocate(on_host, 3 * weir::MiB))
                    pool.deallocate(on_host, p, 3 * weir::MiB);
        });
        for (int i = 0; i < 10; ++i) {
            if (i % 2 == 0)
                pool.suspend();
            else
                pool.suspend(keep);
            CHECK(pool.suspended());
            pool.resume();
        }
        other.join();
        CHECK_FALSE(pool.suspended());
        CHECK(pool.in_use_bytes() == 0);
        pool.deallocate(on_host, pool.allocate(on_host, 3 * weir::MiB), 3 * weir::MiB);
    });
}

TEST_CASE("synchronized: passes errors and refusals on, and the mutex with them") {
    synchronized<slab_pool> pool;
    for (int i = 0; i < 3; ++i) {
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, 64, 3)), weir::usage_error);
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, 65)), weir::out_of_memory);
        CHECK(pool.try_allocate(on_host, 65) == nullptr);
    }
    void* const p = pool.allocate_sync(64);
    pool.deallocate_sync(p, 64);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("synchronized: an allocation that finds no room reads the pool's state while other threads change it") {
    synchronized<any_pool> pool(weir::pool_options{}.limit(64 * KiB));
    std::atomic<int> served{0};
    std::atomic<int> refused{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 3; ++t)
        crew.emplace_back([&, t] {
            std::mt19937_64 draw(t);
            std::vector<std::pair<void*, std::size_t>> live;
            for (int step = 0; step < 1500; ++step) {
                if (draw() % 3 != 0) {
                    std::size_t const bytes = draw() % (8 * KiB) + 1;
                    try {
                        live.emplace_back(pool.allocate(on_host, bytes), bytes);
                        served.fetch_add(1);
                    } catch (weir::out_of_memory const& error) {
                        refused.fetch_add(1);
                        if (error.in_use_bytes() > 64 * KiB || error.asked_bytes() != bytes)
                            wrong.fetch_add(1);
                    }
                } else if (!live.empty()) {
                    if (!pool.owns(live.back().first))
                        wrong.fetch_add(1);
                    pool.deallocate(on_host, live.back().first, live.back().second);
                    live.pop_back();
                }
                if (step % 100 == 0) {
                    pool.settle();
                    pool.trim();
                    if (pool.report().empty() || pool.in_use_bytes() > pool.limit_bytes() ||
                        pool.reserved_bytes() > pool.limit_bytes())
                        wrong.fetch_add(1);
                }
            }
            for (auto const& [p, bytes] : live)
                pool.deallocate(on_host, p, bytes);
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(served.load() > 300);
    CHECK(refused.load() > 0);
    CHECK(wrong.load() == 0);
    CHECK(pool.in_use_bytes() == 0);
}
