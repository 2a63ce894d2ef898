// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <atomic>
#include <doctest/doctest.h>
#include <random>
#include <set>
#include <support/failing_new.hpp>
#include <thread>
#include <vector>
#include <weir/placement/best_fit/fence_set.hpp>

using weir::placement::detail::fence_set;

TEST_CASE("fence_set: knows its fences, at every alignment and at 0") {
    fence_set fences;
    CHECK_FALSE(fences.contains(0));
    CHECK_FALSE(fences.contains(4096));
    fences.insert(0);
    CHECK(fences.contains(0));
    CHECK_FALSE(fences.contains(4096));
    for (std::size_t at = std::size_t{1} << 40; at >= 2; at /= 2) {
        fences.insert(at);
        CHECK(fences.contains(at));
        CHECK(fences.contains(0));
        CHECK_FALSE(fences.contains(at / 2));
        CHECK_FALSE(fences.contains(3 * at));
    }
    for (std::size_t at = std::size_t{1} << 40; at >= 2; at /= 2)
        CHECK(fences.contains(at));
}

TEST_CASE("fence_set: agrees with std::set; inserting and erasing twice does nothing") {
    for (unsigned seed = 0; seed < 8; ++seed) {
        std::mt19937_64 random(seed);
        fence_set fences;
        std::set<std::size_t> model;
        std::size_t const stride = std::size_t{16} << 2 * seed;
        for (int n = 0; n < 2000; ++n) {
            std::size_t const at = random() % 64 * stride;
            if (random() % 2 == 0) {
                fences.insert(at);
                model.insert(at);
            } else {
                fences.erase(at);
                model.erase(at);
            }
            std::size_t const other = random() % 128 * (stride / 2);
            CHECK(fences.contains(at) == (model.count(at) != 0));
            CHECK(fences.contains(other) == (model.count(other) != 0));
        }
    }
}

TEST_CASE("fence_set: threads that add, ask and erase fences of their own do not disturb one another") {
    fence_set fences;
    fences.insert(std::size_t{1} << 40);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::size_t self = 1; self <= 3; ++self)
        threads.emplace_back([&fences, &wrong, self] {
            for (std::size_t n = 1; n < 2000; ++n) {
                std::size_t const at = n * 4096 + self * 512;
                fences.insert(at);
                wrong += !fences.contains(at) + !fences.contains(std::size_t{1} << 40) + fences.contains(at + 256);
                fences.erase(at);
                wrong += fences.contains(at);
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("fence_set: without host memory nothing is inserted") {
    if (!support::host_memory_can_fail)
        return;
    fence_set fences;
    CHECK_THROWS_AS(([&] {
                        support::failing_new const fails(0);
                        fences.insert(4096);
                    }()),
                    std::bad_alloc);
    CHECK_FALSE(fences.contains(4096));
    fences.insert(4096);
    CHECK(fences.contains(4096));
}

TEST_CASE("fence_set: a fence that is there already takes no more room") {
    weir::placement::detail::fence_set fences;
    fences.insert(4096);
    {
        support::failing_new const fails(0);
        for (int n = 0; n < 1000; ++n)
            fences.insert(4096);
    }
    fences.erase(4096);
    CHECK_FALSE(fences.contains(4096));
}
