// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>

using weir::device_buffer;
using weir::memory_space;
using weir::pinned_buffer;
using octets = std::vector<unsigned char>;
using device_pool = support::recording_pool<memory_space::device>;
using pinned_pool = support::recording_pool<memory_space::pinned>;

static_assert(!std::is_copy_constructible_v<device_buffer> && !std::is_copy_assignable_v<device_buffer>);
static_assert(!std::is_copy_constructible_v<pinned_buffer> && !std::is_copy_assignable_v<pinned_buffer>);
static_assert(std::is_nothrow_move_constructible_v<device_buffer> &&
              std::is_nothrow_move_assignable_v<device_buffer>);
static_assert(!std::is_default_constructible_v<device_buffer>);
static_assert(std::is_same_v<decltype(std::declval<device_buffer const&>().data()), void const*>);

namespace {

octets contents(device_buffer const& x) {
    octets host(x.size());
    x.copy_to_sync(host.data());
    return host;
}

octets contents(pinned_buffer const& x) {
    octets host(x.size());
    if (!x.empty())
        std::memcpy(host.data(), x.data(), x.size());
    return host;
}

} // namespace

TEST_CASE_TEMPLATE("buffer: is empty without memory, and grows, shrinks and clears", Buffer, device_buffer,
                   pinned_buffer) {
    support::every_schedule([] {
        support::scoped_stream stream;
        support::recording_pool<Buffer::space> pool;
        Buffer x(pool, stream);
        CHECK(x.empty());
        CHECK(x.data() == nullptr);
        CHECK(std::as_const(x).data() == nullptr);
        CHECK(x.capacity() == 0);
        CHECK(pool.allocations.empty());
        octets const some{1, 2, 3, 4};
        x.append(some.data(), 4);
        x.append(some.data(), 2);
        CHECK(x.size() == 6);
        CHECK(x.size_bytes() == 6);
        CHECK(x.capacity() == 6);
        x.reserve(100);
        CHECK(x.capacity() == 100);
        x.assign(some.data(), 3);
        CHECK(contents(x) == octets{1, 2, 3});
        CHECK(std::as_const(x).data() == x.data());
        x.resize(200);
        x.resize(2);
        x.shrink_to_fit();
        CHECK(x.capacity() == 2);
        CHECK(contents(x) == octets{1, 2});
        x.clear();
        CHECK(x.empty());
        CHECK(x.capacity() == 2);
        CHECK(contents(x).empty());
    });
}

TEST_CASE_TEMPLATE("buffer: is made of a size, of bytes, of another buffer", Buffer, device_buffer,
                   pinned_buffer) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<Buffer::space> pool, other;
        octets const some{1, 2, 3, 4};
        Buffer sized(pool, a, 1000);
        CHECK(sized.size() == 1000);
        Buffer x(pool, a, some.data(), some.size());
        CHECK(contents(x) == some);
        Buffer y(other, b, x);
        CHECK(contents(y) == some);
        CHECK(y.pool() == weir::pool_ref<Buffer::space>(other));
        CHECK(y.stream() == weir::stream_ref(b));
        CHECK(other.live_blocks() == 1);
        y.append(x);
        y.assign(y);
        CHECK(contents(y) == octets{1, 2, 3, 4, 1, 2, 3, 4});
        x = std::move(y);
        CHECK(y.empty());
        CHECK(y.data() == nullptr);
        CHECK(contents(x) == octets{1, 2, 3, 4, 1, 2, 3, 4});
        Buffer z(std::move(x));
        CHECK(x.empty());
        z.set_stream(a);
        z.used_on(b);
        CHECK(contents(z).size() == 8);
    });
}

TEST_CASE("buffer: zeroes, and travels between host and device") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        device_pool pool;
        pinned_pool pinned;
        pinned_buffer up(pinned, b, 100);
        std::memset(up.data(), 7, 100);
        device_buffer x(pool, a, up);
        x.append(up);
        x.assign(up);
        CHECK(contents(x) == octets(100, 7));
        pinned_buffer down(pinned, a, x.size());
        down.zero();
        CHECK(contents(down) == octets(100, 0));
        x.copy_to_async(down.data());
        weir::synchronize(a);
        CHECK(contents(down) == octets(100, 7));
        x.zero_async();
        CHECK(contents(x) == octets(100, 0));
        x.copy_to_sync(down.data());
        CHECK(contents(down) == octets(100, 0));
    });
}

TEST_CASE_TEMPLATE("buffer: stays as it was when the pool has no room, and nothing leaks", Buffer,
                   device_buffer, pinned_buffer) {
    support::every_schedule([] {
        support::scoped_stream stream;
        support::recording_pool<Buffer::space> pool;
        octets const some{1, 2, 3, 4};
        Buffer x(pool, stream, some.data(), some.size());
        auto const fails = [&](auto&& operation, std::size_t tries = 1) {
            pool.fail_at = 1;
            pool.fails = tries;
            CHECK_THROWS_AS(operation(), weir::out_of_memory);
            CHECK(pool.fail_at == 0);
            CHECK(x.capacity() == 4);
            CHECK(contents(x) == some);
            CHECK(pool.live_blocks() == 1);
        };
        fails([&] { x.resize(100); });
        fails([&] { x.reserve(100); });
        fails([&] { x.append(some.data(), 1); }, 2); // first with room for more
        fails([&] { x.append(x); });
        fails([&] { x.assign(octets(5).data(), 5); });
        fails([&] { Buffer(pool, stream, 1); });
        fails([&] { Buffer(pool, stream, some.data(), 4); });
        fails([&] { Buffer(pool, stream, x); });
    });
}

TEST_CASE("buffer: constructors leave nothing behind when CUDA fails") {
    struct scene {
        support::scoped_stream a, b;
        device_pool pool;
        std::unique_ptr<device_buffer> x;
        scene() {
            pool.poisons = false;
            x = std::make_unique<device_buffer>(pool, a, "abcd", 4);
        }
    };
    auto const prepare = [] { return std::make_unique<scene>(); };
    auto const judge = [](scene& s, bool) {
        CHECK(s.pool.live_blocks() == 1);
        CHECK(contents(*s.x) == octets{'a', 'b', 'c', 'd'});
    };
    support::each_fault(
        prepare, [](scene& s) { device_buffer(s.pool, s.a, "efg", 3); }, judge);
    support::each_fault(
        prepare, [](scene& s) { device_buffer(s.pool, s.b, *s.x); }, judge);
    support::each_fault(
        prepare, [](scene& s) { contents(*s.x); }, judge);
}
