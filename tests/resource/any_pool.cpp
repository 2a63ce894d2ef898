// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What an owner adds to the pool inside. That it is a pool is in tests/contract/any_pool.cpp.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <optional>
#include <string>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <type_traits>
#include <utility>
#include <weir/container/vector.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>

using weir::any_device_pool;
using weir::any_host_pool;
using weir::memory_space;

static_assert(std::is_nothrow_move_constructible_v<any_device_pool> && std::is_nothrow_move_assignable_v<any_device_pool>);
static_assert(!std::is_copy_constructible_v<any_device_pool> && !std::is_default_constructible_v<any_device_pool>);
static_assert(std::is_same_v<any_device_pool, weir::any_pool<memory_space::device>>);
static_assert(std::is_same_v<weir::any_pinned_pool, weir::any_pool<memory_space::pinned>>);
static_assert(std::is_same_v<any_host_pool, weir::any_pool<memory_space::host>>);
// An owner that may change is not named by one that may not: a reference could change it.
static_assert(!std::is_constructible_v<weir::device_pool_ref, any_device_pool>);

namespace {

// Counts the pools that there are, and the calls that reach them.
struct calls {
    int pools = 0, trims = 0, settles = 0, containers = 0, before_destroys = 0;
};

template <template <memory_space> class Below>
struct told : Below<memory_space::device> {
    static constexpr bool thread_safe = true;
    explicit told(calls& to) : seen(to) { ++seen.pools; }
    ~told() { --seen.pools; }
    std::size_t trim(std::size_t keep_bytes) { return ++seen.trims, keep_bytes + 1; }
    void settle() { ++seen.settles; }
    void in_container(void*, weir::stream_ref) noexcept { ++seen.containers; }
    std::size_t before_destroy(weir::stream_ref) { return ++seen.before_destroys, 7u; }
    weir::text report() const { return "its own words"; }
    bool can_hold(std::size_t bytes, std::size_t) const { return bytes < 100; }
    weir::refusal refused(std::size_t bytes, std::size_t) const {
        weir::refusal said{{}, "the test made it fail"};
        said.state.name = "refuses";
        said.state.in_use_bytes = bytes;
        return said;
    }
    void examine(weir::memory_report& now) const noexcept { now.device_free_bytes = 5; }
    calls& seen;
};

// A pool with nothing that it need not have.
struct plain : weir::resource::pool_base<plain> {
    static constexpr memory_space space = memory_space::host;
    static constexpr std::size_t default_alignment = 64;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = false;
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t alignment) { return asked = alignment, &asked; }
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t alignment) noexcept { freed = alignment; }
    weir::memory_report state() const {
        weir::memory_report state;
        state.name = "plain";
        state.limit_bytes = 1000;
        return state;
    }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "no"}; }
    std::size_t asked = 0, freed = 0;
};

} // namespace

TEST_CASE("any_pool: hands each call on to the pool inside") {
    support::every_schedule([] {
        support::scoped_stream const s;
        calls seen;
        any_device_pool pool(std::in_place_type<told<support::recording_pool>>, seen);
        void* const p = pool.allocate(s, 100);
        CHECK(p != nullptr);
        pool.deallocate(s, p, 100); // the pool inside checks bytes and alignment
        void* const q = pool.allocate_sync(10, 512);
        pool.deallocate_sync(q, 10, 512);
        CHECK(pool.trim() == 1);
        CHECK(pool.trim(41) == 42);
        CHECK(seen.trims == 2);
        pool.settle();
        CHECK(seen.settles == 1);
        CHECK(pool.before_destroy(s) == 7);
        CHECK(seen.before_destroys == 1);
        pool.in_container(p, s);
        CHECK(seen.containers == 1);
        CHECK(pool.device() == 0);
        CHECK(pool.report() == "its own words");
        CHECK(pool.state().name == "recording");
        CHECK(pool.full_state().device_free_bytes == 5);
        CHECK(pool.can_hold(99, 1));
        CHECK_FALSE(pool.can_hold(100, 1));
        CHECK(pool.can_hold(99));
        CHECK(pool.ref().can_hold(99));
        try {
            static_cast<void>(pool.allocate(s, std::size_t{1} << 40));
            FAIL_CHECK("nothing was thrown");
        } catch (weir::out_of_memory const& error) {
            CHECK(error.pool_name() == "refuses");
            CHECK(error.in_use_bytes() == std::size_t{1} << 40);
            CHECK(error.reason() == "the test made it fail");
        }
    });
}

TEST_CASE("any_pool: a pool without what is optional does nothing there") {
    any_host_pool pool(std::in_place_type<plain>);
    CHECK(pool.trim(1) == 0);
    pool.settle();
    CHECK(pool.before_destroy(weir::on_host) == 0);
    pool.in_container(nullptr, weir::on_host);
    CHECK(pool.device() == weir::any_device);
    CHECK(pool.full_state().device_free_bytes == SIZE_MAX);
    CHECK(pool.can_hold(1000, 1)); // by its limit
    CHECK_FALSE(pool.can_hold(1001, 1));
    CHECK(pool.report() == "pool 'plain' (host): 0 B in use in 0 blocks, 0 B reserved in 0 chunks, limit 1000 B");
    CHECK_FALSE(pool.ref().has_used_on());
}

TEST_CASE("any_pool: owner and reference have one default alignment, whichever the pool inside has") {
    any_host_pool pool(std::in_place_type<plain>);
    weir::host_pool_ref const ref = pool;
    CHECK(any_host_pool::default_alignment == alignof(std::max_align_t));
    CHECK(ref.default_alignment() == any_host_pool::default_alignment);
    auto const* const asked = static_cast<std::size_t const*>(pool.allocate(weir::on_host, sizeof(std::size_t)));
    CHECK(*asked == any_host_pool::default_alignment);
    CHECK(ref.allocate(weir::on_host, 1) == asked);
    CHECK(*asked == any_host_pool::default_alignment);
    CHECK(any_device_pool::default_alignment == 256);
    CHECK(weir::any_pool<memory_space::managed>::default_alignment == 256);
}

TEST_CASE("any_pool: the pool ends with its last owner, and no sooner") {
    calls seen;
    {
        any_device_pool first(std::in_place_type<told<support::recording_pool>>, seen);
        any_device_pool second(std::in_place_type<told<support::recording_pool>>, seen);
        CHECK(seen.pools == 2);
        any_device_pool third(std::move(first));
        CHECK(seen.pools == 2);
        second = std::move(third); // what it held ends
        CHECK(seen.pools == 1);
        any_device_pool& same = second;
        second = std::move(same);
        CHECK(seen.pools == 1);
        second.settle();
        CHECK(seen.settles == 1);
    }
    CHECK(seen.pools == 0);
}

TEST_CASE("any_pool: containers outlast a move of the owner, and use what the pool inside can do") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        calls seen;
        any_device_pool pool(std::in_place_type<told<support::following_pool>>, seen);
        {
            weir::device_vector<int> xs(pool, a, 100);
            CHECK(seen.containers == 1);
            weir::device_pool_ref const before = pool;
            CHECK(before.has_used_on());
            any_device_pool moved(std::move(pool));
            CHECK(weir::device_pool_ref(moved) == before);
            CHECK(moved.ref() == before);
            xs.zero_async();
            xs.used_on(b);
            pool = std::move(moved);
        }
        any_device_pool other(std::in_place_type<told<support::recording_pool>>, seen);
        CHECK(other.ref() != pool.ref());
        CHECK_FALSE(other.ref().has_used_on());
        CHECK(pool == pool);
        CHECK(pool != other);
    });
}

namespace {
struct derived : any_device_pool {
    derived() : any_pool(std::in_place_type<weir::device_pool>) {}
    derived(derived&&) = default;
};
static_assert(!std::is_constructible_v<weir::device_pool_ref, derived>);
} // namespace

TEST_CASE("any_pool: a class derived from one is named by the pool inside, too") {
    support::every_schedule([] {
        support::scoped_stream const s;
        std::optional<derived> owner; // which ends after the vector
        derived pool;
        weir::device_vector<int> xs(pool, s, 100);
        CHECK(xs.pool() == pool.ref());
        CHECK(weir::device_pool_ref(pool) == pool.ref());
        owner.emplace(std::move(pool));
        xs.resize(1000);
        xs.zero_async();
    });
}

TEST_CASE("any_pool: a reference to it may promise less") {
    support::every_schedule([] {
        any_device_pool kernels(std::in_place_type<weir::pinned_pool>);
        weir::any_pinned_pool both(std::in_place_type<weir::pinned_pool>);
        weir::any_host_pool host(std::in_place_type<weir::managed_pool>);
        CHECK(kernels.ref().space() == memory_space::pinned);
        CHECK(host.ref().space() == memory_space::managed);
        weir::device_pool_ref const device = both;
        weir::host_pool_ref const readable = both;
        CHECK(device == weir::device_pool_ref(both.ref()));
        CHECK(readable == weir::host_pool_ref(both.ref()));
    });
}

TEST_CASE("any_pool: a layer around it lists the blocks that went through it alone") {
    using tenant = weir::layer::limit<any_device_pool>;
    using counted = weir::layer::statistics<weir::device_pool>;
    using shared = weir::layer::limit<weir::layer::statistics<weir::device_pool&>>;
    support::every_schedule([] {
        auto const listed = [](tenant& pool, weir::stream_ref s) {
            try {
                static_cast<void>(pool.allocate(s, 2 * weir::MiB));
            } catch (weir::out_of_memory const& error) {
                return error.largest_live().size();
            }
            return SIZE_MAX;
        };
        support::scoped_stream const s;
        tenant alone(3 * weir::MiB, std::in_place_type<counted>);
        weir::device_pool card;
        void* const others = card.allocate(s, 4 * weir::MiB); // not the tenant's
        tenant beside(3 * weir::MiB, std::in_place_type<shared>, SIZE_MAX, card);
        for (tenant* each : {&alone, &beside}) {
            void* const p = each->allocate(s, 2 * weir::MiB);
            CHECK(listed(*each, s) == 1);
            each->deallocate(s, p, 2 * weir::MiB);
        }
        card.deallocate(s, others, 4 * weir::MiB);
    });
}
