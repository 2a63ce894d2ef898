// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <string>
#include <type_traits>
#include <utility>
#include <weir/resource/layered.hpp>

using weir::memory_space;
using weir::on_host_t;

namespace {

// As little as a layer can wrap.
struct plain : weir::resource::pool_base<plain> {
    static constexpr memory_space space = memory_space::host;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = false;
    static constexpr std::size_t default_alignment = 16;
    void* try_allocate(on_host_t, std::size_t bytes, std::size_t) { return bytes == 1 ? this : nullptr; }
    void deallocate(on_host_t, void*, std::size_t, std::size_t) noexcept { ++frees; }
    weir::memory_report state() const {
        weir::memory_report now;
        now.name = "plain";
        return now;
    }
    weir::refusal refused(std::size_t bytes, std::size_t alignment) const {
        return {full_state(), "no " + std::to_string(bytes) + " at " + std::to_string(alignment)};
    }
    int device() const { return 3; }
    int frees = 0;
};

// All that a pool may have.
struct rich : plain {
    static constexpr memory_space space = memory_space::managed;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 512;
    rich() = default;
    rich(int first, std::string second) : first_(first), second_(std::move(second)) {}
    std::size_t reserved_bytes() const { return 11; }
    std::size_t in_use_bytes() const { return 12; }
    std::size_t limit_bytes() const { return 13; }
    std::string const& name() const { return second_; }
    std::string report() const { return "rich report"; }
    bool owns(void const* p) const { return p == this; }
    std::size_t trim(std::size_t keep_bytes) { return trimmed = keep_bytes; }
    void settle() { ++settled; }
    void used_on(void* p, int stream) { used = {p, stream}; }
    void last_used_on(void* p, int stream) { used = {p, -stream}; }
    void examine(weir::memory_report& now) const noexcept { now.device_free_bytes = 14; }
    int first_ = 0;
    std::string second_;
    std::size_t trimmed = 99;
    int settled = 0;
    std::pair<void*, int> used{nullptr, 0};
};

template <class Pool>
struct layer : weir::resource::layered<layer<Pool>, Pool> {
    template <class... Arguments,
              class = std::enable_if_t<weir::resource::layered<layer<Pool>, Pool>::template makes_pool<Arguments...>>>
    explicit layer(Arguments&&... arguments)
        : weir::resource::layered<layer, Pool>(std::in_place, std::forward<Arguments>(arguments)...) {}
    void* try_allocate(on_host_t stream, std::size_t bytes, std::size_t alignment) {
        return this->pool_.try_allocate(stream, bytes, alignment);
    }
    void deallocate(on_host_t stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
};

// Made from anything.
struct greedy : plain {
    template <class... Arguments>
    explicit greedy(Arguments const&...) {}
};

template <class L, class = void>
struct has_all : std::false_type {};
template <class L>
struct has_all<L, std::void_t<decltype(std::declval<L const&>().reserved_bytes()),
                              decltype(std::declval<L const&>().in_use_bytes()),
                              decltype(std::declval<L const&>().limit_bytes()), decltype(std::declval<L const&>().name()),
                              decltype(std::declval<L const&>().report()), decltype(std::declval<L const&>().owns(nullptr)),
                              decltype(std::declval<L&>().trim(0)), decltype(std::declval<L&>().settle()),
                              decltype(std::declval<L&>().used_on(nullptr, 1)),
                              decltype(std::declval<L&>().last_used_on(nullptr, 1))>> : std::true_type {};

template <class L, class = void>
struct has_any_trim : std::false_type {};
template <class L>
struct has_any_trim<L, std::void_t<decltype(std::declval<L&>().trim(0))>> : std::true_type {};
template <class L, class = void>
struct has_any_owns : std::false_type {};
template <class L>
struct has_any_owns<L, std::void_t<decltype(std::declval<L const&>().owns(nullptr))>> : std::true_type {};
template <class L, class = void>
struct has_any_used_on : std::false_type {};
template <class L>
struct has_any_used_on<L, std::void_t<decltype(std::declval<L&>().used_on(nullptr, 1))>> : std::true_type {};

} // namespace

// A member that the pool lacks is absent in the layer, through any number of layers, and one that it has is there.
static_assert(has_all<layer<rich>>::value && has_all<layer<layer<layer<rich>>>>::value && has_all<layer<rich&>>::value);
static_assert(!has_any_trim<layer<plain>>::value && !has_any_owns<layer<plain>>::value &&
              !has_any_used_on<layer<layer<plain>>>::value);
static_assert(!std::is_copy_constructible_v<layer<rich>> && !std::is_copy_assignable_v<layer<rich>>);
static_assert(layer<rich>::space == memory_space::managed && layer<plain>::space == memory_space::host);
static_assert(layer<rich>::thread_safe && !layer<plain>::thread_safe);
static_assert(layer<rich>::stream_ordered && !layer<plain>::stream_ordered);
static_assert(layer<rich>::default_alignment == 512 && layer<layer<plain&>>::default_alignment == 16);
static_assert(std::is_same_v<layer<rich&>::pool_type, rich>);

TEST_CASE("layered: holds a pool of its own, made from what it is given") {
    layer<rich> outer(5, "frames");
    CHECK(outer.inner().first_ == 5);
    CHECK(outer.name() == "frames");
    layer<layer<rich>> twice(6, "more");
    CHECK(twice.inner().inner().first_ == 6);
    layer<rich> const& fixed = outer;
    CHECK(&fixed.inner() == &outer.inner());
}

TEST_CASE("layered: is made from what makes its pool, and from nothing else") {
    CHECK(std::is_constructible_v<layer<rich>>);
    CHECK(std::is_constructible_v<layer<rich>, int, char const*>);
    CHECK(std::is_constructible_v<layer<layer<rich>>, int, std::string&>);
    CHECK_FALSE(std::is_constructible_v<layer<rich>, int>);
    CHECK_FALSE(std::is_constructible_v<layer<layer<rich>>, char const*, int>);
    CHECK(std::is_constructible_v<layer<rich&>, rich&>);
    CHECK_FALSE(std::is_constructible_v<layer<rich&>>);
    CHECK_FALSE(std::is_constructible_v<layer<rich&>, rich>);
    CHECK_FALSE(std::is_constructible_v<layer<rich&>, rich const&>);
    CHECK_FALSE(std::is_constructible_v<layer<rich>, layer<rich>&>);
    CHECK(std::is_constructible_v<layer<greedy>, int, int, int>);
    CHECK_FALSE(std::is_constructible_v<layer<greedy>, layer<greedy>&>);
    CHECK_FALSE(std::is_constructible_v<layer<greedy>, layer<greedy> const&>);
    CHECK_FALSE(std::is_constructible_v<layer<greedy>, layer<greedy>>);
}

TEST_CASE("layered: what the pool can tell of itself passes through any number of layers") {
    layer<layer<rich>> const pool;
    CHECK(pool.full_state().device_free_bytes == 14);
    CHECK(pool.full_report() == "rich report, 14 B free on the device");
    CHECK(layer<layer<plain>>().full_state().device_free_bytes == SIZE_MAX);
}

TEST_CASE("layered: a refusal's state is that of the part that refuses, through any number of layers") {
    struct tenant : rich {
        weir::refusal refused(std::size_t bytes, std::size_t alignment) const {
            weir::refusal own;
            own.state.name = "tenant";
            own.state.in_use_bytes = bytes + alignment;
            return own;
        }
    };
    layer<layer<tenant>> pool;
    CHECK(pool.refused(40, 2).state.in_use_bytes == 42);
    CHECK(pool.state().name == "plain");
    try {
        static_cast<void>(pool.allocate(weir::on_host, 40, 2));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.pool_name() == "tenant");
        CHECK(error.in_use_bytes() == 42);
    }
}

TEST_CASE("layered: or stands on a pool that lives elsewhere") {
    rich pool;
    {
        layer<rich&> one(pool), other(pool);
        CHECK(&one.inner() == &pool);
        CHECK(&other.inner() == &pool);
        one.settle();
        other.settle();
        CHECK(one != other);
        CHECK(one == one);
    }
    CHECK(pool.settled == 2);
}

TEST_CASE("layered: passes every member through, with its arguments and its answer") {
    layer<layer<rich>> outer;
    rich& pool = outer.inner().inner();
    CHECK(outer.reserved_bytes() == 11);
    CHECK(outer.in_use_bytes() == 12);
    CHECK(outer.limit_bytes() == 13);
    CHECK(outer.report() == "rich report");
    CHECK(outer.owns(&pool));
    CHECK_FALSE(outer.owns(&outer + 1));
    CHECK(outer.trim(42) == 42);
    CHECK(pool.trimmed == 42);
    CHECK(outer.trim() == 0);
    outer.settle();
    CHECK(pool.settled == 1);
    outer.used_on(&pool, 8);
    CHECK(pool.used == std::pair<void*, int>(&pool, 8));
    outer.last_used_on(&pool, 8);
    CHECK(pool.used == std::pair<void*, int>(&pool, -8));
    CHECK(outer.state().name == "plain");
    CHECK(outer.refused(3, 4).reason == "no 3 at 4");
    CHECK(outer.device() == 3);
    CHECK(std::is_same_v<decltype(outer.name()), std::string const&>); // no copy on the way
}

TEST_CASE("layered: has the throwing allocate over its own try_allocate") {
    layer<plain> outer;
    CHECK(outer.allocate(weir::on_host, 1) == &outer.inner());
    CHECK(outer.allocate_sync(0) == nullptr);
    CHECK_THROWS_AS(static_cast<void>(outer.allocate_sync(2)), weir::out_of_memory);
    outer.deallocate_sync(nullptr, 1);
    CHECK(outer.inner().frees == 1);
}
