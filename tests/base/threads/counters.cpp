// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <thread>
#include <vector>
#include <weir/base/threads/counters.hpp>

using weir::base::memory_order_relaxed;

TEST_CASE("counters: a count goes down as far as zero") {
    weir::base::atomic<std::size_t> count(10);
    weir::base::lower(count, std::size_t{3});
    CHECK(count.load(memory_order_relaxed) == 7);
    weir::base::lower(count, std::size_t{7});
    CHECK(count.load(memory_order_relaxed) == 0);
    count.store(5, memory_order_relaxed);
    weir::base::lower(count, std::size_t{6});
    CHECK(count.load(memory_order_relaxed) == 0);
    weir::base::lower(count, SIZE_MAX);
    CHECK(count.load(memory_order_relaxed) == 0);
}

TEST_CASE("counters: a peak goes up only") {
    weir::base::atomic<std::uint64_t> peak(4);
    weir::base::raise(peak, std::uint64_t{3});
    CHECK(peak.load(memory_order_relaxed) == 4);
    weir::base::raise(peak, std::uint64_t{9});
    CHECK(peak.load(memory_order_relaxed) == 9);
}

TEST_CASE("counters: threads lose nothing of either") {
    constexpr std::size_t each = 20'000;
    constexpr std::size_t threads = 4;
    weir::base::atomic<std::size_t> count(each * threads);
    weir::base::atomic<std::size_t> peak(0);
    std::vector<std::thread> crew;
    for (std::size_t t = 0; t < threads; ++t)
        crew.emplace_back([&, t] {
            for (std::size_t i = 0; i < each; ++i) {
                weir::base::lower(count, std::size_t{1});
                weir::base::raise(peak, i * threads + t);
            }
        });
    for (std::thread& thread : crew)
        thread.join();
    CHECK(count.load(memory_order_relaxed) == 0);
    CHECK(peak.load(memory_order_relaxed) == each * threads - 1);
}
