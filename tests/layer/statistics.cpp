// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every layer must do is in tests/contract/layer.cpp.

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <support/counting_pool.hpp>
#include <support/failing_new.hpp>
#include <support/one_block.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/layer/guard.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>

using support::counting_pool;
using weir::MiB;
using weir::on_host;
using counted = weir::layer::statistics<counting_pool<>>;

TEST_CASE("statistics: is made from what makes its pool, and from nothing else") {
    using pool = counting_pool<>;
    using by_reference = weir::layer::statistics<pool&>;
    CHECK(std::is_constructible_v<counted>);
    CHECK(std::is_constructible_v<by_reference, pool&>);
    CHECK_FALSE(std::is_constructible_v<by_reference, pool const&>);
    CHECK_FALSE(std::is_constructible_v<counted, int*, int, int>);
    CHECK_FALSE(std::is_constructible_v<counted, counted&>);
    CHECK_FALSE(std::is_constructible_v<counted, counted>);
}

TEST_CASE("statistics: nothing was asked for at first") {
    counted const pool;
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.live_blocks() == 0);
    CHECK(pool.peak_requested_bytes() == 0);
    CHECK(pool.peak_live_blocks() == 0);
    CHECK(pool.total_bytes() == 0);
    CHECK(pool.total_blocks() == 0);
    CHECK(pool.failures() == 0);
}

TEST_CASE("statistics: counts bytes as asked, now, at most, and in all") {
    counted pool;
    void* const a = pool.try_allocate(on_host, 100);
    void* const b = pool.try_allocate(on_host, 50, 1024);
    CHECK(pool.requested_bytes() == 150);
    CHECK(pool.live_blocks() == 2);
    pool.deallocate(on_host, a, 100);
    CHECK(pool.requested_bytes() == 50);
    void* const c = pool.try_allocate(on_host, 60);
    CHECK(pool.requested_bytes() == 110);
    CHECK(pool.peak_requested_bytes() == 150);
    CHECK(pool.peak_live_blocks() == 2);
    CHECK(pool.total_bytes() == 210);
    CHECK(pool.total_blocks() == 3);
    pool.deallocate(on_host, b, 50, 1024);
    pool.deallocate(on_host, c, 60);
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.live_blocks() == 0);
    CHECK(pool.peak_requested_bytes() == 150);
    CHECK(pool.total_blocks() == 3);
}

TEST_CASE("statistics: zero bytes and null count for nothing") {
    counted pool;
    CHECK(pool.allocate(on_host, 0) == nullptr);
    pool.deallocate(on_host, nullptr, 100);
    CHECK(pool.live_blocks() == 0);
    CHECK(pool.total_blocks() == 0);
    CHECK(pool.failures() == 0);
}

TEST_CASE("statistics: more frees than allocations count nothing below zero") {
    struct heedless : support::counting_pool<> { // it takes what it is given
        void* try_allocate(weir::stream_ref, std::size_t, std::size_t = default_alignment) { return this; }
        void deallocate(weir::stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {}
    };
    weir::layer::statistics<heedless> pool;
    void* const p = pool.allocate(on_host, 60);
    pool.deallocate(on_host, p, 60);
    pool.deallocate(on_host, p, 60);
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.live_blocks() == 0);
    void* const q = pool.allocate(on_host, 10);
    CHECK(pool.requested_bytes() == 10);
    CHECK(pool.peak_requested_bytes() == 60);
    CHECK(pool.peak_live_blocks() == 1);
    pool.deallocate(on_host, q, 10);
}

TEST_CASE("statistics: what the pool refuses is a failure, what it throws is none of its numbers") {
    counted pool(std::size_t{100});
    CHECK(pool.try_allocate(on_host, 101) == nullptr);
    CHECK_THROWS_AS(static_cast<void>(pool.allocate(on_host, 200)), weir::out_of_memory);
    CHECK(pool.failures() == 2);
    pool.inner().throw_at = 1;
    CHECK_THROWS_AS(static_cast<void>(pool.try_allocate(on_host, 10)), support::pool_failure);
    CHECK(pool.failures() == 2);
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.total_blocks() == 0);
}

TEST_CASE("statistics: reset_peaks starts a new measurement and touches nothing that is live") {
    counted pool;
    void* const a = pool.try_allocate(on_host, 1000);
    void* const b = pool.try_allocate(on_host, 10);
    pool.deallocate(on_host, a, 1000);
    CHECK(pool.peak_requested_bytes() == 1010);
    pool.reset_peaks();
    CHECK(pool.peak_requested_bytes() == 10);
    CHECK(pool.peak_live_blocks() == 1);
    CHECK(pool.requested_bytes() == 10);
    CHECK(pool.total_bytes() == 1010);
    void* const c = pool.try_allocate(on_host, 20);
    CHECK(pool.peak_requested_bytes() == 30);
    pool.deallocate(on_host, b, 10);
    pool.deallocate(on_host, c, 20);
}

TEST_CASE("statistics: lists large blocks, so that an out_of_memory names the largest") {
    weir::layer::statistics<counting_pool<>> pool(64 * MiB);
    std::size_t const least = decltype(pool)::least_listed_bytes;
    void* const small = pool.allocate(on_host, least - 1);
    void* const a = pool.allocate(on_host, least);
    void* const b = pool.allocate(on_host, 3 * MiB);
    void* const c = pool.allocate(on_host, 5 * MiB);
    CHECK(pool.full_state().largest_live.size() == 3);
    pool.deallocate(on_host, c, 5 * MiB);
    try {
        static_cast<void>(pool.allocate(on_host, 100 * MiB));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        REQUIRE(error.largest_live().size() == 2);
        CHECK(error.largest_live()[0].address == b);
        CHECK(error.largest_live()[0].bytes == 3 * MiB);
        CHECK(error.largest_live()[1].address == a);
        CHECK_SAYS(error.what(), "; the largest live blocks: 3 MiB at 0x");
    }
    pool.deallocate(on_host, a, least);
    pool.deallocate(on_host, b, 3 * MiB);
    pool.deallocate(on_host, small, least - 1);
    CHECK(pool.full_state().largest_live.empty());
}

TEST_CASE("statistics: what a layer below lists as well is there once") {
    weir::layer::statistics<weir::layer::guard<counting_pool<>>> pool;
    void* const a = pool.allocate(on_host, 2 * MiB);
    void* const b = pool.allocate(on_host, 100);
    weir::largest_blocks const list = pool.full_state().largest_live;
    REQUIRE(list.size() == 2);
    CHECK(list[0].address == a);
    CHECK(list[1].address == b);
    pool.deallocate(on_host, a, 2 * MiB);
    pool.deallocate(on_host, b, 100);
}

TEST_CASE("statistics: without host memory a block is handed out and counted, and not listed") {
    if (!support::host_memory_can_fail)
        return;
    struct one_block : counting_pool<> { // needs no memory of the host's
        void* try_allocate(weir::stream_ref, std::size_t, std::size_t = default_alignment) { return this; }
        void deallocate(weir::stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {}
    };
    weir::layer::statistics<one_block> pool;
    void* p = nullptr;
    {
        support::failing_new const none(0);
        p = pool.allocate(on_host, 2 * MiB);
    }
    CHECK(p != nullptr);
    CHECK(pool.requested_bytes() == 2 * MiB);
    CHECK(pool.full_state().largest_live.empty());
    pool.deallocate(on_host, p, 2 * MiB);
    CHECK(pool.requested_bytes() == 0);
}

TEST_CASE("statistics: agrees with a model over random calls") {
    std::mt19937_64 draw(31);
    counted pool(std::size_t{20000});
    std::vector<std::pair<void*, std::size_t>> live;
    std::uint64_t now = 0, peak = 0, peak_live_blocks = 0, total = 0, blocks = 0, failures = 0;
    for (int step = 0; step < 4000; ++step) {
        if (draw() % 100 == 0) {
            pool.reset_peaks();
            peak = now;
            peak_live_blocks = live.size();
        }
        if (draw() % 2 == 0) {
            std::size_t const bytes = draw() % 2000;
            void* const p = pool.try_allocate(on_host, bytes);
            if (p) {
                live.emplace_back(p, bytes);
                now += bytes;
                total += bytes;
                ++blocks;
                peak = now > peak ? now : peak;
                peak_live_blocks = live.size() > peak_live_blocks ? live.size() : peak_live_blocks;
            } else if (bytes != 0) {
                ++failures;
            }
        } else if (!live.empty()) {
            std::swap(live[draw() % live.size()], live.back());
            pool.deallocate(on_host, live.back().first, live.back().second);
            now -= live.back().second;
            live.pop_back();
        }
        REQUIRE(pool.requested_bytes() == now);
        REQUIRE(pool.live_blocks() == live.size());
        REQUIRE(pool.peak_requested_bytes() == peak);
        REQUIRE(pool.peak_live_blocks() == peak_live_blocks);
        REQUIRE(pool.total_bytes() == total);
        REQUIRE(pool.total_blocks() == blocks);
        REQUIRE(pool.failures() == failures);
    }
    for (auto const& [p, bytes] : live)
        pool.deallocate(on_host, p, bytes);
    CHECK(pool.requested_bytes() == 0);
}

TEST_CASE("statistics: is exact once threads are done, and a peak is never below what was live") {
    counted pool;
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::thread watcher([&] {
        std::uint64_t seen = 0;
        while (!over.load()) {
            std::uint64_t const peak = pool.peak_requested_bytes();
            if (peak < seen) // nobody resets
                wrong.fetch_add(1);
            seen = peak;
        }
    });
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            for (int round = 0; round < 500; ++round) {
                void* blocks[4];
                for (void*& each : blocks)
                    each = pool.try_allocate(on_host, 100 + t);
                for (void* each : blocks)
                    pool.deallocate(on_host, each, 100 + t);
            }
        });
    for (std::thread& each : crew)
        each.join();
    over.store(true);
    watcher.join();
    CHECK(wrong.load() == 0);
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.live_blocks() == 0);
    CHECK(pool.total_blocks() == 4 * 500 * 4);
    CHECK(pool.total_bytes() == 500 * 4 * (100 + 101 + 102 + 103));
    CHECK(pool.peak_live_blocks() >= 4);
    CHECK(pool.peak_requested_bytes() >= 400);
}

TEST_CASE("statistics: a peak of several threads is too high by what idle threads keep, and by no more than is promised") {
    constexpr std::uint64_t each = 256, bytes = 64 << 10; // blocks that a thread has out, and of what size
    counted pool;
    std::atomic<unsigned> turn{0};
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 16; ++t)
        crew.emplace_back([&, t] {
            while (turn.load() != t)
                std::this_thread::yield();
            std::vector<void*> live;
            for (std::uint64_t i = 0; i < each; ++i)
                live.push_back(pool.try_allocate(on_host, bytes));
            for (void* p : live)
                pool.deallocate(on_host, p, bytes);
            turn.store(t + 1);
            while (turn.load() != 16) // all threads live until the last has had its turn
                std::this_thread::yield();
        });
    for (std::thread& thread : crew)
        thread.join();
    CHECK(pool.peak_requested_bytes() >= each * bytes);
    CHECK(pool.peak_requested_bytes() <= each * bytes + 16 * MiB);
    CHECK(pool.peak_live_blocks() >= each);
    CHECK(pool.peak_live_blocks() <= each + 1024);
    CHECK(pool.requested_bytes() == 0);
    pool.reset_peaks();
    CHECK(pool.peak_requested_bytes() == 0);
    CHECK(pool.peak_live_blocks() == 0);
    CHECK(pool.total_blocks() == 16 * each);
}

TEST_CASE("statistics: a name stands in place of the pool's, for the layer that it is given to") {
    counting_pool<> card(std::size_t{100}, "card");
    weir::layer::statistics<counting_pool<>&> named(weir::layer_options{}.name("tenant a"), card), other(card);
    CHECK(named.name() == "tenant a");
    CHECK(named.state().name == "tenant a");
    CHECK(other.name() == "card");
    CHECK(other.state().name == "card");
    weir::layer::statistics<weir::layer::statistics<counting_pool<>&>> tower(weir::layer_options{}.name("above"), card);
    CHECK(tower.name() == "above");
    CHECK(tower.inner().name() == "card");
}

TEST_CASE("statistics: what a scope ends is counted off and listed no more") {
    weir::layer::statistics<weir::frame_pool> pool(weir::pool_options{}.device(0));
    void* const first = pool.allocate_sync(2 * MiB);
    void* const second = pool.allocate_sync(100);
    {
        weir::scope const frame(pool);
        static_cast<void>(pool.allocate_sync(3 * MiB));
        static_cast<void>(pool.allocate_sync(4 * MiB));
        pool.deallocate_sync(second, 100);
        CHECK(pool.live_blocks() == 3);
    }
    CHECK(pool.requested_bytes() == 2 * MiB);
    CHECK(pool.live_blocks() == 1);
    CHECK(pool.peak_requested_bytes() == 9 * MiB + 100);
    CHECK(pool.total_blocks() == 4);
    weir::largest_blocks own;
    pool.list_own(own);
    CHECK(own.size() == 1);
    CHECK(own[0].address == first);
    pool.clear();
    CHECK(pool.requested_bytes() == 0);
    CHECK(pool.live_blocks() == 0);
    CHECK(pool.full_state().largest_live.empty());
}

TEST_CASE("statistics: an address that is handed out again before the free has returned is the next owner's in the list") {
    weir::layer::statistics<support::one_block> pool;
    void* const p = pool.try_allocate(weir::on_host, 2 * MiB);
    void* next = nullptr;
    pool.inner().at_free = [&] { next = pool.try_allocate(weir::on_host, 3 * MiB); };
    pool.deallocate(weir::on_host, p, 2 * MiB);
    CHECK(next == p);
    CHECK(pool.full_state().largest_live.size() == 1);
    pool.deallocate(weir::on_host, next, 3 * MiB);
    CHECK(pool.full_state().largest_live.empty());
}

TEST_CASE("statistics: a part of the program has a peak of its own, which nothing else disturbs") {
    counted pool;
    auto const live = [&](std::size_t bytes) { pool.deallocate(on_host, pool.allocate(on_host, bytes), bytes); };
    live(1000);
    void* const kept = pool.allocate(on_host, 10);
    auto const outer = pool.measure();
    CHECK(outer.peak_requested_bytes() == 10); // what is live when it begins
    live(500);
    {
        auto const inner = pool.measure();
        live(200);
        CHECK(inner.peak_requested_bytes() == 210);
        CHECK(outer.peak_requested_bytes() == 510);
        pool.reset_peaks();
        CHECK(pool.peak_requested_bytes() == 10);
        live(100);
        CHECK(pool.peak_requested_bytes() == 110);
        CHECK(inner.peak_requested_bytes() == 210);
        live(300);
        CHECK(inner.peak_requested_bytes() == 310);
    }
    CHECK(outer.peak_requested_bytes() == 510);
    CHECK(pool.peak_requested_bytes() == 310);
    live(600);
    CHECK(outer.peak_requested_bytes() == 610);
    CHECK(pool.peak_requested_bytes() == 610);
    pool.deallocate(on_host, kept, 10);
}

TEST_CASE("statistics: parts that overlap end in any order") {
    counted pool;
    auto const live = [&](std::size_t bytes) { pool.deallocate(on_host, pool.allocate(on_host, bytes), bytes); };
    using region = counted::measured_region;
    auto first = std::make_unique<region>(pool);
    live(100);
    auto second = std::make_unique<region>(pool);
    live(70);
    auto third = std::make_unique<region>(pool);
    CHECK(first->peak_requested_bytes() == 100);
    second.reset();
    live(50);
    CHECK(third->peak_requested_bytes() == 50);
    first.reset();
    live(60);
    CHECK(third->peak_requested_bytes() == 60);
    CHECK(pool.peak_requested_bytes() == 100);
}
