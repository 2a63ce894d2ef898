// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>
#include <weir/reuse/stream_ordered/lookup_table.hpp>

using weir::reuse::detail::lookup_table;

static_assert(!std::is_copy_constructible_v<lookup_table<int>> && !std::is_copy_assignable_v<lookup_table<int>>);

TEST_CASE("lookup_table: an empty table knows nothing") {
    lookup_table<int> const table;
    for (std::uint64_t key = 1; key < 100; ++key)
        CHECK(table.find(key) == nullptr);
    CHECK(table.find(UINT64_MAX) == nullptr);
}

TEST_CASE("lookup_table: a key has the pointer that it was given last") {
    lookup_table<int> table;
    int a = 1, b = 2;
    table.assign(0x7f00, &a);
    CHECK(table.find(0x7f00) == &a);
    CHECK(table.find(0x7f01) == nullptr);
    table.assign(0x7f00, &b);
    CHECK(table.find(0x7f00) == &b);
    table.assign(0x7f00, nullptr);
    CHECK(table.find(0x7f00) == nullptr);
    table.assign(0x7f00, &a);
    CHECK(table.find(0x7f00) == &a);
}

TEST_CASE("lookup_table: finds every key through any number of growths") {
    lookup_table<std::uint64_t> table;
    std::vector<std::uint64_t> values(5000);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = (i + 1) * 16; // as handles are: multiples of a power of two
        table.assign(values[i], &values[i]);
        if (i % 97 == 0)
            for (std::size_t j = 0; j <= i; ++j)
                REQUIRE(table.find(values[j]) == &values[j]);
    }
    for (std::uint64_t& value : values)
        REQUIRE(table.find(value) == &value);
    for (std::uint64_t key = 1; key < 16; ++key)
        CHECK(table.find(key) == nullptr);
}

TEST_CASE("lookup_table: a key without a pointer is left behind when the table grows") {
    lookup_table<int> table;
    int here = 0;
    for (std::uint64_t key = 1; key <= 5000; ++key) {
        table.assign(key, &here);
        if (key % 5 != 0)
            table.assign(key, nullptr);
    }
    for (std::uint64_t key = 1; key <= 5000; ++key)
        REQUIRE(table.find(key) == (key % 5 == 0 ? &here : nullptr));
}

TEST_CASE("lookup_table: agrees with a map") {
    std::mt19937_64 draw(5);
    lookup_table<int> table;
    std::unordered_map<std::uint64_t, int*> model;
    std::vector<int> objects(64);
    std::vector<std::uint64_t> keys;
    for (int i = 0; i < 400; ++i)
        keys.push_back(draw() | 1); // ids are made odd, handles are even: any number but 0 may come
    for (int step = 0; step < 5000; ++step) {
        std::uint64_t const key = keys[draw() % keys.size()];
        int* const value = draw() % 4 == 0 ? nullptr : &objects[draw() % objects.size()];
        table.assign(key, value);
        model[key] = value;
        std::uint64_t const other = keys[draw() % keys.size()];
        auto const found = model.find(other);
        REQUIRE(table.find(other) == (found == model.end() ? nullptr : found->second));
    }
}

TEST_CASE("lookup_table: room that was made for a key is there for it") {
    lookup_table<int> table;
    int object = 0;
    for (std::uint64_t key = 1; key <= 300; ++key) {
        table.reserve_one();
        table.assign(key, &object);
        REQUIRE(table.find(key) == &object);
    }
}

TEST_CASE("lookup_table: readers find what was there before they asked, while a writer adds and grows") {
    struct thing {
        std::atomic<std::uint64_t> key{0};
    };
    constexpr std::size_t count = 3000;
    lookup_table<thing> table;
    std::vector<thing> things(count);
    std::atomic<std::size_t> published{0};
    std::atomic<std::size_t> wrong{0};
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 3; ++t)
        crew.emplace_back([&, t] {
            std::mt19937_64 draw(t);
            for (std::size_t known = 0; known < count;) {
                known = published.load(std::memory_order_acquire);
                if (known == 0)
                    continue;
                std::size_t const i = draw() % known;
                thing const* const found = table.find((i + 1) * 32);
                if (found != &things[i] || found->key.load(std::memory_order_relaxed) != (i + 1) * 32)
                    wrong.fetch_add(1);
                if (table.find((count + 1 + i) * 32) != nullptr)
                    wrong.fetch_add(1);
            }
        });
    for (std::size_t i = 0; i < count; ++i) {
        things[i].key.store((i + 1) * 32, std::memory_order_relaxed);
        table.assign((i + 1) * 32, &things[i]);
        published.store(i + 1, std::memory_order_release);
    }
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
}

TEST_CASE("lookup_table: keys that come and go leave nothing behind, and the others stay") {
    lookup_table<int> table;
    int here[3] = {};
    for (std::uint64_t key = 1; key <= 3; ++key)
        table.assign(key << 40, &here[key - 1]);
    for (std::uint64_t key = 1; key <= 20000; ++key) {
        table.assign(key, &here[0]);
        CHECK(table.find(key) == &here[0]);
        table.assign(key, nullptr);
        for (std::uint64_t other = 1; other <= 3; ++other)
            REQUIRE(table.find(other << 40) == &here[other - 1]);
    }
    CHECK(table.find(20000) == nullptr);
    CHECK(table.bookkeeping_bytes() <= 1024);
}
