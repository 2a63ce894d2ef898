// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <string>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <type_traits>
#include <weir/driver/driver_pool.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_ref.hpp>

using weir::memory_space;
using weir::pool_ref;
using weir::resource::reaches;

static_assert(std::is_trivially_copyable_v<pool_ref<memory_space::device>>);
static_assert(sizeof(pool_ref<memory_space::device>) == 2 * sizeof(void*));
// A temporary is no pool that anything can outlive in.
static_assert(std::is_constructible_v<pool_ref<memory_space::device>, support::recording_pool<>&>);
static_assert(!std::is_constructible_v<pool_ref<memory_space::device>, support::recording_pool<>>);

namespace {

// A pool of host memory which needs no device.
struct host_pool : weir::resource::pool_base<host_pool> {
    static constexpr memory_space space = memory_space::host;
    static constexpr std::size_t default_alignment = 64;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = false;
    void* try_allocate(weir::stream_ref, std::size_t bytes, std::size_t) {
        return bytes <= 4096 ? ::operator new(bytes) : nullptr;
    }
    void deallocate(weir::stream_ref, void* p, std::size_t, std::size_t) noexcept { ::operator delete(p); }
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "more than 4096 bytes"}; }
};

// A layer that holds its pool by value, so that the two share an address.
template <class Pool>
struct layer : weir::resource::layered<layer<Pool>, Pool> {
    layer() : weir::resource::layered<layer<Pool>, Pool>(std::in_place) {}
    void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) {
        return this->pool_.try_allocate(stream, bytes, alignment);
    }
    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
};

} // namespace

TEST_CASE("pool_ref: memory reaches as far as its space says") {
    memory_space const all[] = {memory_space::device, memory_space::pinned, memory_space::managed,
                                memory_space::host};
    for (memory_space offered : all) {
        CHECK(reaches(offered, offered));
        CHECK(reaches(memory_space::managed, offered));
        CHECK(reaches(memory_space::pinned, offered));
        CHECK(reaches(offered, memory_space::device) == weir::base::device_accessible(offered));
        CHECK(reaches(offered, memory_space::host) == weir::base::host_accessible(offered));
        CHECK(reaches(offered, memory_space::pinned) ==
              (reaches(offered, memory_space::device) && reaches(offered, memory_space::host)));
    }
}

TEST_CASE("pool_ref: knows the pool's device where the pool does") {
    host_pool nowhere;
    layer<host_pool> outer;
    CHECK(pool_ref<memory_space::host>(nowhere).device() == weir::any_device);
    CHECK(pool_ref<memory_space::host>(outer).device() == weir::any_device);
    weir::driver_pool somewhere;
    CHECK(pool_ref<memory_space::device>(somewhere).device() == weir::runtime::current_device());
}

TEST_CASE("pool_ref: hands calls on as they are") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        pool_ref<memory_space::device> const ref = pool;
        CHECK(ref.default_alignment() == 256);
        CHECK(ref.space() == memory_space::device);
        CHECK_FALSE(ref.has_used_on());

        void* const p = ref.allocate(a, 100, 512);
        REQUIRE(pool.allocations.size() == 1);
        CHECK(pool.allocations[0].p == p);
        CHECK(pool.allocations[0].bytes == 100);
        CHECK(pool.allocations[0].alignment == 512);
        CHECK(pool.allocations[0].stream == weir::stream_ref(a));
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        ref.deallocate(b, p, 100, 512);
        REQUIRE(pool.frees.size() == 1);
        CHECK(pool.frees[0].p == p);
        CHECK(pool.frees[0].stream == weir::stream_ref(b));

        CHECK_THROWS_WITH_AS(ref.used_on(p, b), doctest::Contains("weir: this pool has no 'used_on'"), weir::usage_error);
        CHECK_THROWS_AS(ref.last_used_on(p, b), weir::usage_error);

        void* const usual = ref.allocate(a, 100);
        CHECK(pool.allocations[1].alignment == 256);
        ref.deallocate(a, usual, 100);
        CHECK(pool.frees[1].p == usual);

        CHECK(ref.allocate(a, 0, 256) == nullptr);
        pool.fail_at = 1;
        CHECK_THROWS_AS(static_cast<void>(ref.allocate(a, 1, 256)), weir::out_of_memory);
    });
}

TEST_CASE("pool_ref: tells the pool of second uses where it can be told") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::following_pool<> pool;
        pool_ref<memory_space::device> const ref = pool;
        REQUIRE(ref.has_used_on());
        void* const p = ref.allocate(a, 100, 256);
        ref.used_on(p, b);
        REQUIRE(pool.uses.size() == 1);
        CHECK(pool.uses[0].p == p);
        CHECK(pool.uses[0].stream == weir::stream_ref(b));
        ref.last_used_on(p, a);
        REQUIRE(pool.last_uses.size() == 1);
        CHECK(pool.last_uses[0].stream == weir::stream_ref(a));
        ref.deallocate(a, p, 100, 256);
    });
}

TEST_CASE("pool_ref: is equal where it names one pool") {
    host_pool one, other;
    pool_ref<memory_space::host> const a = one, b = other;
    pool_ref<memory_space::host> c = one;
    CHECK(a == c);
    CHECK_FALSE(a != c);
    CHECK(a != b);
    c = b;
    CHECK(c == b);

    layer<host_pool> outer;
    pool_ref<memory_space::host> const outside = outer, inside = outer.inner();
    CHECK(static_cast<void*>(&outer) == static_cast<void*>(&outer.inner()));
    CHECK(outside != inside);
    CHECK_FALSE(outside.has_used_on());
    void* const p = outside.allocate(cudaStream_t{}, 10, 64);
    outside.deallocate(cudaStream_t{}, p, 10, 64);
    CHECK_THROWS_AS(static_cast<void>(outside.allocate(cudaStream_t{}, 5000, 64)), weir::out_of_memory);
}

TEST_CASE("pool_ref: converts to a reference that promises less") {
    support::every_schedule([] {
        support::recording_pool<memory_space::pinned> pool;
        pool_ref<memory_space::pinned> both = pool;
        pool_ref<memory_space::device> const kernels = both;
        pool_ref<memory_space::host> const host = both;
        CHECK(kernels == pool_ref<memory_space::device>(pool));
        CHECK(host == pool_ref<memory_space::host>(pool));
        CHECK(kernels.space() == memory_space::pinned);
        pool_ref<memory_space::pinned> const copy =
            both; // of a reference that is not const: no pool of pools
        CHECK(copy == both);
    });
}
