// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>
#include <weir/base/shared.hpp>

namespace {

struct counted {
    explicit counted(int& living, int worth = 0) : living_(&living), value(worth) {
        if (worth < 0)
            throw std::invalid_argument("negative");
        ++*living_;
    }
    counted(counted const&) = delete;
    ~counted() { --*living_; }

    int* living_;
    int value;
};

using owner = weir::base::shared<counted>;

} // namespace

TEST_CASE("shared: an owner of nothing is false and owns nothing") {
    owner none;
    CHECK_FALSE(none);
    owner copy = none;
    CHECK_FALSE(copy);
    CHECK(copy == none);
    owner moved = std::move(none);
    CHECK_FALSE(moved);
}

TEST_CASE("shared: the last owner to go destroys the object, once") {
    int living = 0;
    owner first = owner::make(living, 7);
    CHECK(living == 1);
    CHECK(first->value == 7);
    CHECK((*first).value == 7);
    {
        owner second = first;
        CHECK(second == first);
        first = owner();
        CHECK_FALSE(first);
        CHECK(living == 1);
        CHECK(second->value == 7);
    }
    CHECK(living == 0);
}

TEST_CASE("shared: assigning lets the old object go and keeps the new one") {
    int living = 0;
    owner a = owner::make(living, 1);
    owner b = owner::make(living, 2);
    CHECK(a != b);
    CHECK(living == 2);
    a = b;
    CHECK(living == 1);
    CHECK(a->value == 2);
    owner const& same = a;
    a = same; // itself
    CHECK(living == 1);
    CHECK(a->value == 2);
    b = std::move(a);
    CHECK_FALSE(a);
    CHECK(b->value == 2);
    CHECK(living == 1);
}

TEST_CASE("shared: what the object's constructor throws comes through, and nothing is left") {
    int living = 0;
    CHECK_THROWS_AS(static_cast<void>(owner::make(living, -1)), std::invalid_argument);
    CHECK(living == 0);
}

TEST_CASE("shared: owners in several threads come and go") {
    int living = 0;
    {
        owner const original = owner::make(living, 3);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([mine = original] {
                int sum = 0;
                for (int round = 0; round < 10000; ++round) {
                    owner const copy = mine;
                    sum += copy->value;
                }
                if (sum != 30000)
                    throw std::logic_error("a copy lost its object");
            });
        for (std::thread& each : threads)
            each.join();
        CHECK(living == 1);
    }
    CHECK(living == 0);
}
