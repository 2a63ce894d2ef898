// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <utility>
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>

using weir::device_value;
using weir::memory_space;
using weir::pinned_value;
using device_pool = support::recording_pool<memory_space::device>;
using pinned_pool = support::recording_pool<memory_space::pinned>;

static_assert(!std::is_copy_constructible_v<device_value<int>> &&
              !std::is_copy_assignable_v<device_value<int>>);
static_assert(!std::is_copy_constructible_v<pinned_value<int>>);
static_assert(std::is_nothrow_move_constructible_v<device_value<int>>);
static_assert(std::is_nothrow_move_assignable_v<pinned_value<int>>);
static_assert(std::is_same_v<decltype(std::declval<device_value<int> const&>().data()), int const*>);
// The type of the element can be left out.
using of_device = decltype(device_value(std::declval<device_pool&>(), cudaStream_t{}, 5));
using of_pinned = decltype(pinned_value(std::declval<pinned_pool&>(), cudaStream_t{}, 5));
static_assert(std::is_same_v<of_device, device_value<int>> && std::is_same_v<of_pinned, pinned_value<int>>);
static_assert(std::is_same_v<of_device, decltype(device_value(std::declval<device_pool&>(), cudaStream_t{},
                                                              std::declval<of_device&>()))>);
static_assert(std::is_same_v<of_pinned, decltype(pinned_value(std::declval<pinned_pool&>(), cudaStream_t{},
                                                              std::declval<of_pinned&>()))>);

namespace {

struct point {
    double x, y;
};

struct alignas(1024) wide {
    int value;
};

} // namespace

TEST_CASE("value: a device value is set and read in stream order") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        device_pool pool;
        {
            device_value<int> x(pool, a, 5);
            CHECK(x.value_sync() == 5);
            x.set_async(6);
            x.set_async(7);
            int host = 0;
            x.copy_to_async(&host);
            weir::synchronize(a);
            CHECK(host == 7);
            x.zero_async();
            CHECK(x.value_sync() == 0);
            CHECK(x.pool() == weir::pool_ref<memory_space::device>(pool));
            x.set_async(8);
            x.set_stream(b);
            CHECK(x.value_sync() == 8);
            x.used_on(a);
            CHECK(std::as_const(x).data() == x.data());

            device_value<int> y(pool, a, x); // a snapshot
            x.set_async(9);
            CHECK(y.value_sync() == 8);
            CHECK(pool.live_blocks() == 2);
            device_value<point> none(pool, a);
            CHECK(pool.allocations.back().bytes == sizeof(point));
        }
        CHECK(pool.live_blocks() == 0);
        CHECK(pool.frees.back().stream == weir::stream_ref(b));
        device_value<wide> w(pool, a, wide{3});
        CHECK(reinterpret_cast<std::uintptr_t>(w.data()) % 1024 == 0);
        CHECK(w.value_sync().value == 3);
    });
}

TEST_CASE("value: a device value that was moved from says so") {
    support::every_schedule([] {
        support::scoped_stream a;
        device_pool pool;
        device_value<int> x(pool, a, 5);
        device_value<int> y(std::move(x));
        CHECK(x.data() == nullptr);
        CHECK(y.value_sync() == 5);
        CHECK(support::sentence_of<weir::usage_error>([&] { x.set_async(1); }) ==
              "weir: this value was moved from and has no element; assign another to it first");
        CHECK_THROWS_AS(x.value_sync(), weir::usage_error);
        CHECK_THROWS_AS(x.zero_async(), weir::usage_error);
        int untouched = 3;
        CHECK_THROWS_AS(x.copy_to_async(&untouched), weir::usage_error);
        CHECK(untouched == 3);
        x = std::move(y);
        CHECK(x.value_sync() == 5);
    });
}

TEST_CASE("value: a pinned value is the host's") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        pinned_pool pool;
        {
            pinned_value<point> x(pool, a, point{1, 2});
            CHECK((*x).x == 1);
            CHECK(std::as_const(x)->y == 2);
            x->y = 3;
            *x = point{x->x, x->y + 1};
            CHECK((*std::as_const(x)).y == 4);
            CHECK(std::as_const(x).data() == x.data());
            pinned_value<point> y(std::move(x));
            CHECK(x.data() == nullptr);
            CHECK(y->y == 4);
            y.set_stream(b);
            pinned_value<point> none(pool, a);
            none = std::move(y);
            CHECK(none->x == 1);
        }
        CHECK(pool.live_blocks() == 0);
        CHECK(pool.allocations.at(0).stream.is_host());
        CHECK(pool.frees.back().stream == weir::stream_ref(b));

        device_pool device;
        device_value<int> from(device, a, 77);
        pinned_value<int> to(pool, a, 0);
        from.copy_to_async(to.data());
        weir::synchronize(a);
        CHECK(*to == 77);
        from.set_async(*to);
        *to = 78; // the value was taken at the call
        CHECK(from.value_sync() == 77);
    });
}

TEST_CASE("value: a pinned value is copied at once, to any pool") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        pinned_pool pool, another;
        pinned_value<int> x(pool, a, 5);
        pinned_value<int> y(another, b, x);
        *x = 6;
        CHECK(*y == 5);
        CHECK(y.stream() == weir::stream_ref(b));
        CHECK(*x == 6);
    });
}

TEST_CASE_TEMPLATE("value: nothing is left of a value that could not be made", Value, device_value<int>, pinned_value<int>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<Value::space> pool;
        Value x(pool, a, 5);
        auto const fails = [&](auto&& make) {
            pool.fail_at = 1;
            CHECK_THROWS_AS(make(), weir::out_of_memory);
            CHECK(pool.live_blocks() == 1);
        };
        fails([&] { Value(pool, a); });
        fails([&] { Value(pool, a, 1); });
        fails([&] { Value(pool, b, x); });
        CHECK_THROWS_AS(Value(pool, weir::on_host), weir::usage_error);
        CHECK_THROWS_AS(Value(pool, weir::on_host, 1), weir::usage_error);
        Value const same(std::move(x));
        CHECK_THROWS_AS(Value(pool, a, x), weir::usage_error); // has no element
        CHECK(pool.live_blocks() == 1);
        weir::device_buffer copy(pool, a, same);
        int host = 0;
        copy.copy_to_sync(&host);
        CHECK(host == 5);
    });
}

TEST_CASE("value: stays as it was when CUDA fails, whichever call it is") {
    struct scene {
        support::scoped_stream a, b;
        device_pool pool;
        device_value<int> x;
        scene() : x(pool, a, 5) { pool.poisons = false; }
    };
    auto const prepare = [] { return std::make_unique<scene>(); };
    auto const judge = [](scene& s, bool failed) {
        CHECK(s.pool.live_blocks() == 1);
        if (failed)
            CHECK(s.x.value_sync() == 5);
    };
    auto const sweep = [&](auto&& operation) { support::each_fault(prepare, operation, judge); };
    sweep([](scene& s) { s.x.set_async(6); });
    sweep([](scene& s) { s.x.value_sync(); });
    sweep([](scene& s) { s.x.zero_async(); });
    sweep([](scene& s) { s.x.set_stream(s.b); });
    sweep([](scene& s) { device_value<int>(s.pool, s.b, 1); });
    sweep([](scene& s) { device_value<int>(s.pool, s.b, s.x); });
}
