// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <support/failing_new.hpp>
#include <weir/base/address_map.hpp>

using weir::base::address_map;

TEST_CASE("address_map: finds what was inserted, and nothing else") {
    address_map map;
    CHECK(map.empty());
    CHECK(map.find(1) == address_map::none);
    CHECK(map.erase(1) == address_map::none);
    map.insert(4096, 7);
    CHECK(map.find(4096) == 7);
    CHECK(map.contains(4096));
    CHECK(map.find(8192) == address_map::none);
    CHECK(map.erase(8192) == address_map::none);
    map.assign(4096, 8);
    CHECK(map.erase(4096) == 8);
    CHECK(map.find(4096) == address_map::none);
    CHECK(map.empty());
}

TEST_CASE("address_map: agrees with std::map through inserts, erases and growth") {
    // Strides that a program's addresses have, and keys without any order.
    for (std::uint64_t const stride : {1ull, 256ull, 512ull, 4096ull, 2097152ull, 12345ull, 0x9E3779B97F4A7C15ull}) {
        for (unsigned seed = 0; seed < 4; ++seed) {
            CAPTURE(stride);
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            std::uint64_t const keys = 10u << 2 * seed;
            address_map map;
            std::map<std::uint64_t, std::uint32_t> model;
            for (int n = 0; n < 4000; ++n) {
                std::uint64_t const key = (1 + random() % keys) * stride;
                if (key == 0)
                    continue;
                auto const there = model.find(key);
                CHECK(map.find(key) == (there == model.end() ? address_map::none : there->second));
                if (there == model.end()) {
                    map.insert(key, static_cast<std::uint32_t>(n));
                    model[key] = static_cast<std::uint32_t>(n);
                } else if (random() % 3 == 0) {
                    map.assign(key, static_cast<std::uint32_t>(n));
                    there->second = static_cast<std::uint32_t>(n);
                } else {
                    CHECK(map.erase(key) == there->second);
                    model.erase(there);
                }
                CHECK(map.size() == model.size());
            }
            for (auto const& entry : model)
                CHECK(map.find(entry.first) == entry.second);
            map.visit([&](std::uint64_t key, std::uint32_t value) {
                auto const there = model.find(key);
                REQUIRE(there != model.end());
                CHECK(value == there->second);
                model.erase(there);
            });
            CHECK(model.empty());
        }
    }
}

TEST_CASE("address_map: a run that wraps around the end of the table survives erasing") {
    // 10 keys in 16 slots, all subsets of erasures by single keys, from many key sets: runs wrap in some of them.
    for (std::uint64_t set = 1; set < 400; ++set) {
        address_map map;
        for (std::uint64_t n = 1; n <= 10; ++n)
            map.insert(set * 1000003 * n, static_cast<std::uint32_t>(n));
        for (std::uint64_t gone = 1; gone <= 10; ++gone) {
            address_map copy = map;
            copy.erase(set * 1000003 * gone);
            for (std::uint64_t n = 1; n <= 10; ++n)
                CHECK(copy.find(set * 1000003 * n) == (n == gone ? address_map::none : static_cast<std::uint32_t>(n)));
        }
    }
}

TEST_CASE("address_map: reserved room needs no more host memory, and a failed growth changes nothing") {
    if (!support::host_memory_can_fail)
        return;
    address_map map;
    map.reserve(1000);
    {
        support::failing_new const fails(0);
        for (std::uint64_t n = 1; n <= 1000; ++n)
            map.insert(n * 512, static_cast<std::uint32_t>(n));
    }
    CHECK(map.bookkeeping_bytes() <= 1000 * 51 + 512);
    bool failed = false;
    std::uint64_t n = 1001;
    try {
        support::failing_new const fails(0);
        for (; n <= 5000; ++n)
            map.insert(n * 512, static_cast<std::uint32_t>(n));
    } catch (std::bad_alloc const&) {
        failed = true;
    }
    CHECK(failed);
    CHECK(map.size() == n - 1);
    for (std::uint64_t key = 1; key < 5000; ++key)
        CHECK(map.contains(key * 512) == (key < n));
    map.insert(n * 512, 1);
    CHECK(map.contains(n * 512));
}
