// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <new>
#include <random>
#include <support/failing_new.hpp>
#include <utility>
#include <vector>
#include <weir/base/growing_array.hpp>

using weir::base::growing_array;

namespace {

// Counts what lives, and knows that it was moved from.
struct tracked {
    static inline int live = 0;

    tracked() : tracked(0) {}
    explicit tracked(int is) : value(is) { ++live; }
    tracked(tracked const& other) : value(other.value) {
        if (value == refuses_copies)
            throw std::bad_alloc();
        ++live;
    }
    tracked(tracked&& other) noexcept : value(std::exchange(other.value, -1)) { ++live; }
    tracked& operator=(tracked&& other) noexcept {
        value = std::exchange(other.value, -1);
        return *this;
    }
    ~tracked() { --live; }

    static constexpr int refuses_copies = 999;
    int value;
};

growing_array<tracked> up_to(int count) {
    growing_array<tracked> list;
    for (int i = 0; i < count; ++i)
        list.push_back(tracked(i));
    return list;
}

std::vector<int> values(growing_array<tracked> const& list) {
    std::vector<int> all;
    for (tracked const& each : list)
        all.push_back(each.value);
    return all;
}

} // namespace

TEST_CASE("growing_array: holds nothing and no memory at first") {
    growing_array<int> const list;
    CHECK(list.empty());
    CHECK(list.size() == 0);
    CHECK(list.capacity() == 0);
    CHECK(list.begin() == list.end());
}

TEST_CASE("growing_array: grows, in order, and its elements end with it") {
    {
        growing_array<tracked> list = up_to(100);
        CHECK(list.size() == 100);
        CHECK(list.capacity() >= 100);
        CHECK(tracked::live == 100);
        for (std::size_t i = 0; i < 100; ++i)
            CHECK(list[i].value == static_cast<int>(i));
        CHECK(list.back().value == 99);
        list.pop_back();
        CHECK(list.back().value == 98);
        CHECK(tracked::live == 99);
        std::size_t const room = list.capacity();
        list.clear();
        CHECK(tracked::live == 0);
        CHECK(list.capacity() == room);
        list.push_back(tracked(7));
    }
    CHECK(tracked::live == 0);
}

TEST_CASE("growing_array: its growth is geometric") {
    growing_array<int> list;
    int growths = 0;
    for (int i = 0; i < 100000; ++i) {
        std::size_t const before = list.capacity();
        list.push_back(i);
        growths += list.capacity() != before;
    }
    CHECK(growths < 20);
}

TEST_CASE("growing_array: an element of its own can be appended while it grows") {
    growing_array<std::vector<int>> list;
    list.push_back({1, 2, 3});
    while (list.size() < 100)
        list.push_back(list[0]);
    for (std::vector<int> const& each : list)
        CHECK(each == std::vector<int>{1, 2, 3});
}

TEST_CASE("growing_array: reserved room is there, and keeps the elements") {
    growing_array<tracked> list = up_to(3);
    list.reserve(50);
    CHECK(list.capacity() == 50);
    tracked const* const first = list.data();
    while (list.size() < 50)
        list.push_back(tracked(0));
    CHECK(list.data() == first);
    CHECK(list[2].value == 2);
    list.reserve(10);
    CHECK(list.capacity() == 50);
}

TEST_CASE("growing_array: more than an address space holds is refused before any change") {
    growing_array<std::uint64_t> list(2);
    list[1] = 5;
    CHECK_THROWS_AS(list.reserve(SIZE_MAX / 4), std::bad_alloc);
    CHECK(list.size() == 2);
    CHECK(list[1] == 5);
}

TEST_CASE("growing_array: resize makes new elements, zero for numbers, or ends old ones") {
    growing_array<int> numbers(5);
    CHECK(numbers.capacity() == 5);
    for (int const each : numbers)
        CHECK(each == 0);
    growing_array<tracked> list = up_to(3);
    list.resize(5);
    CHECK(values(list) == std::vector<int>{0, 1, 2, 0, 0});
    list.resize(1);
    CHECK(values(list) == std::vector<int>{0});
    CHECK(tracked::live == 1);
}

TEST_CASE("growing_array: insert and erase do what std::vector's do") {
    std::mt19937 random(7);
    growing_array<tracked> list;
    std::vector<int> model;
    for (int i = 0; i < 2000; ++i) {
        std::size_t const at = random() % (model.size() + 1);
        auto const where = static_cast<std::ptrdiff_t>(at);
        if (model.size() < 40 && (at == model.size() || random() % 2 == 0)) {
            tracked const* const placed = list.insert(list.begin() + where, tracked(i));
            CHECK(placed == list.begin() + where);
            model.insert(model.begin() + where, i);
        } else if (at < model.size()) {
            tracked const* const next = list.erase(list.begin() + where);
            CHECK(next == list.begin() + where);
            model.erase(model.begin() + where);
        }
        REQUIRE(values(list) == model);
        REQUIRE(tracked::live == static_cast<int>(model.size()));
    }
}

TEST_CASE("growing_array: copies are apart, moves leave nothing behind") {
    growing_array<tracked> first = up_to(4);
    growing_array<tracked> const copy(first);
    first[0].value = 9;
    CHECK(values(copy) == std::vector<int>{0, 1, 2, 3});
    tracked const* const memory = first.data();
    growing_array<tracked> moved(std::move(first));
    CHECK(moved.data() == memory);
    CHECK(first.empty()); // NOLINT: a moved-from array is as good as new
    CHECK(first.capacity() == 0);
    first = copy;
    CHECK(values(first) == std::vector<int>{0, 1, 2, 3});
    first = std::move(moved);
    CHECK(first.data() == memory);
    CHECK(tracked::live == 8);
    growing_array<tracked> other = up_to(2);
    other.swap(first);
    CHECK(values(first) == std::vector<int>{0, 1});
    CHECK(values(other) == std::vector<int>{9, 1, 2, 3});
}

TEST_CASE("growing_array: a copy that fails leaves nothing behind") {
    growing_array<tracked> list = up_to(2);
    list.push_back(tracked(tracked::refuses_copies));
    int const before = tracked::live;
    CHECK_THROWS_AS(growing_array<tracked>{list}, std::bad_alloc);
    CHECK(tracked::live == before);
}

TEST_CASE("growing_array: where the host has no memory to grow, it is as it was") {
    if (!support::host_memory_can_fail)
        return;
    auto const full = [] {
        growing_array<tracked> list = up_to(4);
        REQUIRE(list.size() == list.capacity());
        return list;
    };
    auto const is_as_it_was = [](growing_array<tracked> const& list) {
        CHECK(values(list) == std::vector<int>{0, 1, 2, 3});
        CHECK(tracked::live == 4);
    };
    for (std::ptrdiff_t at = 0; at <= 4; ++at) {
        CAPTURE(at);
        CHECK(support::each_failure(
                  full, [at](growing_array<tracked>& list) { list.insert(list.begin() + at, tracked(9)); },
                  is_as_it_was) == 1);
    }
    CHECK(support::each_failure(full, [](growing_array<tracked>& list) { list.push_back(tracked(9)); }, is_as_it_was) == 1);
    CHECK(support::each_failure(full, [](growing_array<tracked>& list) { list.resize(5); }, is_as_it_was) == 1);
    CHECK(support::each_failure(full, [](growing_array<tracked>& list) { list.reserve(5); }, is_as_it_was) == 1);
}

TEST_CASE("growing_array: room for more is made seldom, however often it is asked for") {
    growing_array<int> array;
    std::size_t moves = 0;
    for (int i = 0; i < 10'000; ++i) {
        std::size_t const before = array.capacity();
        array.reserve_more(1);
        moves += array.capacity() != before;
        CHECK(array.capacity() > array.size());
        array.push_back(i);
    }
    CHECK(moves <= 20);
    array.reserve_more(50'000);
    CHECK(array.capacity() >= 60'000);
    CHECK(array[9'999] == 9'999);
    CHECK_THROWS_AS(array.reserve_more(SIZE_MAX / sizeof(int)), std::bad_alloc);
}
