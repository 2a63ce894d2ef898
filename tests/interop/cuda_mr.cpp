// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// With every CCCL from 2.8 on: the stage 'cccl' compiles this file with each, and runs it with the oldest and the newest.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/interop/cuda_mr.hpp>
#include <weir/weir.hpp>
#if CCCL_VERSION >= 3004000 // before, a host compiler does not take it
#include <cuda/buffer>
#endif

using weir::memory_space;
using cuda::mr::device_accessible;
using cuda::mr::host_accessible;
using weir::interop::cuda_mr::resource;
using weir::interop::cuda_mr::shared_resource;
template <memory_space Space>
using recording = support::recording_pool<Space>;

namespace {

// What has another name before CCCL 3.1.
#if CCCL_VERSION >= 3001000
template <class Resource>
constexpr bool is_resource = cuda::mr::resource<Resource> && cuda::mr::synchronous_resource<Resource>;
template <class... Properties>
using stream_ordered_ref = cuda::mr::resource_ref<Properties...>;
template <class... Properties>
using synchronous_ref = cuda::mr::synchronous_resource_ref<Properties...>;
template <class Ref>
void* allocate(Ref ref, cudaStream_t stream, std::size_t bytes, std::size_t alignment) {
    return ref.allocate(stream, bytes, alignment);
}
template <class Ref>
void deallocate(Ref ref, cudaStream_t stream, void* p, std::size_t bytes, std::size_t alignment) {
    ref.deallocate(stream, p, bytes, alignment);
}
template <class Ref>
void* allocate_sync(Ref ref, std::size_t bytes, std::size_t alignment) {
    return ref.allocate_sync(bytes, alignment);
}
template <class Ref>
void deallocate_sync(Ref ref, void* p, std::size_t bytes, std::size_t alignment) {
    ref.deallocate_sync(p, bytes, alignment);
}
#else
template <class Resource>
constexpr bool is_resource = cuda::mr::async_resource<Resource> && cuda::mr::resource<Resource>;
template <class... Properties>
using stream_ordered_ref = cuda::mr::async_resource_ref<Properties...>;
template <class... Properties>
using synchronous_ref = cuda::mr::resource_ref<Properties...>;
template <class Ref>
void* allocate(Ref ref, cudaStream_t stream, std::size_t bytes, std::size_t alignment) {
    return ref.allocate_async(bytes, alignment, stream);
}
template <class Ref>
void deallocate(Ref ref, cudaStream_t stream, void* p, std::size_t bytes, std::size_t alignment) {
    ref.deallocate_async(p, bytes, alignment, stream);
}
template <class Ref>
void* allocate_sync(Ref ref, std::size_t bytes, std::size_t alignment) {
    return ref.allocate(bytes, alignment);
}
template <class Ref>
void deallocate_sync(Ref ref, void* p, std::size_t bytes, std::size_t alignment) {
    ref.deallocate(p, bytes, alignment);
}
#endif

template <class Resource, class... Properties>
constexpr bool has = (cuda::has_property<Resource, Properties> && ...);

// What a pool's resource has to be, whichever pool it is.
template <class Pool>
constexpr bool is_plugged_in() {
    using plug = resource<Pool>;
    constexpr memory_space space = weir::interop::cuda_mr::detail::space_of<Pool>::value;
    return is_resource<plug> && std::is_nothrow_copy_constructible_v<plug> && std::is_nothrow_copy_assignable_v<plug> &&
           sizeof(plug) == (weir::resource::detail::is_pool_ref<Pool> ? 3 : 2) * sizeof(void*) &&
           has<plug, device_accessible> == weir::base::device_accessible(space) &&
           has<plug, host_accessible> == weir::base::host_accessible(space);
}
template <class... Pools>
constexpr bool all_are_plugged_in = (is_plugged_in<Pools>() && ...);
static_assert(all_are_plugged_in<weir::device_pool, weir::promised_device_pool, weir::compact_device_pool, weir::driver_pool,
                                 weir::frame_pool, weir::managed_pool, weir::pinned_pool, weir::node_pool, weir::host_pool>);
static_assert(all_are_plugged_in<weir::layer::limit<weir::device_pool>, weir::layer::statistics<weir::pinned_pool&>,
                                 weir::layer::guard<weir::driver_pool>, weir::layer::synchronized<weir::frame_pool>,
                                 weir::layer::fallback<weir::device_pool, weir::device_pool>>);
static_assert(all_are_plugged_in<weir::pool_ref<memory_space::device>, weir::pool_ref<memory_space::pinned>,
                                 weir::pool_ref<memory_space::host>>);
static_assert(is_resource<shared_resource<weir::device_pool>> && has<shared_resource<weir::device_pool>, device_accessible>);

template <class Resource>
using upstream = weir::interop::cuda_mr::upstream<Resource>;
static_assert(upstream<stream_ordered_ref<device_accessible>>::space == memory_space::device);
static_assert(upstream<stream_ordered_ref<device_accessible, host_accessible>>::space == memory_space::pinned);
static_assert(upstream<synchronous_ref<host_accessible>>::space == memory_space::host);
static_assert(weir::interop::cuda_mr::upstream<stream_ordered_ref<device_accessible, host_accessible>, memory_space::managed>::space ==
              memory_space::managed);

#if CCCL_VERSION >= 3002000
static_assert(std::is_same_v<resource<weir::device_pool>::default_queries, cuda::mr::properties_list<device_accessible>>);
static_assert(std::is_same_v<resource<weir::pinned_pool>::default_queries, cuda::mr::properties_list<device_accessible, host_accessible>>);
static_assert(std::is_same_v<resource<weir::host_pool>::default_queries, cuda::mr::properties_list<host_accessible>>);
#endif

} // namespace

TEST_CASE("cuda_mr: a type-erased reference allocates from the pool, on the stream, aligned as the pool does by itself") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        recording<memory_space::device> pool;
        resource mr(pool);
        stream_ordered_ref<device_accessible> const ref(mr);
        std::size_t frees = 0;
        struct {
            std::size_t asked, got;
        } const alignments[]{{1, 256}, {16, 256}, {128, 256}, {256, 256}, {1024, 1024}};
        for (auto const& each : alignments) {
            CAPTURE(each.asked);
            for (bool const on_stream : {true, false}) {
                CAPTURE(on_stream);
                weir::stream_ref const expected = on_stream ? weir::stream_ref(stream) : weir::stream_ref(weir::on_host);
                void* const p = on_stream ? allocate(ref, stream, 100, each.asked) : allocate_sync(ref, 100, each.asked);
                CHECK(reinterpret_cast<std::uintptr_t>(p) % each.got == 0);
                CHECK(pool.allocations.back().p == p);
                CHECK(pool.allocations.back().bytes == 100);
                CHECK(pool.allocations.back().alignment == each.got);
                CHECK(pool.allocations.back().stream == expected);
                if (on_stream)
                    deallocate(ref, stream, p, 100, each.asked); // whose alignment the pool checks
                else
                    deallocate_sync(ref, p, 100, each.asked);
                CHECK(pool.frees.size() == ++frees);
                CHECK(pool.frees.back().stream == expected);
            }
        }
        CHECK(pool.live_blocks() == 0);
        for (std::size_t const bad : {std::size_t{0}, std::size_t{3}, std::size_t{42}, std::size_t{300}}) {
            CAPTURE(bad);
            CHECK_THROWS_AS(static_cast<void>(mr.allocate(cuda::stream_ref(stream), 100, bad)), weir::usage_error);
            CHECK_THROWS_AS(static_cast<void>(mr.allocate_sync(100, bad)), weir::usage_error);
        }

        pool.fail_at = 1;
        CHECK_THROWS_AS(static_cast<void>(allocate(ref, stream, 100, 16)), weir::out_of_memory);
        CHECK_THROWS_AS(static_cast<void>(allocate(ref, stream, std::size_t{1} << 40, 16)), std::bad_alloc);
    });
}

namespace {
struct their_out_of_memory : std::bad_alloc {
    explicit their_out_of_memory(char const* text) : text_(text) {}
    char const* what() const noexcept override { return text_.c_str(); }

private:
    std::string text_;
};
} // namespace

TEST_CASE("cuda_mr: code that catches its own exception gets that, with the pool's words") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        recording<memory_space::device> pool;
        resource<recording<memory_space::device>, their_out_of_memory> const mr(pool);
        shared_resource<weir::device_pool, their_out_of_memory> const owner(std::in_place, weir::pool_options{}.name("small"));
        std::string said;
        try {
            static_cast<void>(owner.allocate_sync(std::size_t{1} << 50));
        } catch (their_out_of_memory const& error) {
            said = error.what();
        }
        CHECK(said.find("small") != std::string::npos);
        pool.fail_at = 1;
        CHECK_THROWS_AS(static_cast<void>(mr.allocate(cuda::stream_ref(stream), 100)), their_out_of_memory);
        void* const p = mr.allocate(cuda::stream_ref(stream), 100);
        mr.deallocate(cuda::stream_ref(stream), p, 100);
    });
}

TEST_CASE("cuda_mr: the names of every version are there, whichever CCCL is") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        recording<memory_space::device> pool;
        resource const mr(pool);
        cuda::stream_ref const s(stream);
        void* const p[]{mr.allocate(s, 10),       mr.allocate_sync(10), mr.allocate_async(10, 512, s),
                        mr.allocate_async(10, s), mr.allocate(10),      mr.allocate(std::size_t{10}, std::size_t{512})};
        for (std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{3}})
            CHECK(pool.allocations[i].stream == weir::stream_ref(stream));
        for (std::size_t i : {std::size_t{1}, std::size_t{4}, std::size_t{5}})
            CHECK(pool.allocations[i].stream == weir::on_host);
        mr.deallocate(s, p[0], 10);
        mr.deallocate_sync(p[1], 10);
        mr.deallocate_async(p[2], 10, 512, s);
        mr.deallocate_async(p[3], 10, s);
        mr.deallocate(p[4], 10);
        mr.deallocate(p[5], std::size_t{10}, std::size_t{512});
        for (std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{3}})
            CHECK(pool.frees[i].stream == weir::stream_ref(stream));
        CHECK(pool.live_blocks() == 0);
    });
}

TEST_CASE("cuda_mr: a null stream is the default stream of the file that made the resource") {
    support::every_schedule([] {
        recording<memory_space::device> pool;
        for (weir::stream_ref const meant : {weir::stream_ref(weir::default_stream), weir::stream_ref(cudaStreamPerThread)}) {
            resource mr = meant == weir::stream_ref(weir::default_stream) ? resource(pool) : resource(pool, meant);
            stream_ordered_ref<device_accessible> const ref(mr);
            void* const p = allocate(ref, nullptr, 100, 256);
            CHECK(pool.allocations.back().stream == meant);
            deallocate(ref, nullptr, p, 100, 256);
            CHECK(pool.frees.back().stream == meant);
        }
    });
}

TEST_CASE("cuda_mr: resources are equal where they name one pool") {
    support::every_schedule([] {
        recording<memory_space::device> pool, other;
        resource a(pool), b(pool), c(other);
        CHECK(a == b);
        CHECK(a != c);
        CHECK(&a.pool() == &pool);
        get_property(a, device_accessible{}); // CCCL asks whether this is there, and never calls it
        CHECK(stream_ordered_ref<device_accessible>(a) == stream_ordered_ref<device_accessible>(b));
        CHECK(stream_ordered_ref<device_accessible>(a) != stream_ordered_ref<device_accessible>(c));
        shared_resource<weir::device_pool> const x(std::in_place), y(std::in_place);
        shared_resource<weir::device_pool> const copy = x;
        CHECK(copy == x);
        CHECK(x != y);
    });
}

TEST_CASE("cuda_mr: a reference to a pool is kept by value, and is equal to others of that pool") {
    support::every_schedule([] {
        weir::device_pool pool, other;
        weir::device_pool_ref a(pool), b(pool);
        resource one(a), two(b), temporary{weir::device_pool_ref(pool)}, third{weir::device_pool_ref(other)};
        static_assert(std::is_same_v<decltype(one), resource<weir::device_pool_ref>>);
        static_assert(std::is_same_v<decltype(temporary), resource<weir::device_pool_ref>>);
        CHECK(one == two);
        CHECK(one == temporary);
        CHECK(one != third);
        CHECK(stream_ordered_ref<device_accessible>(one) == stream_ordered_ref<device_accessible>(two));
        void* const p = one.allocate_sync(100);
        a = weir::device_pool_ref(other);
        CHECK(one.pool() == b);
        CHECK(pool.state().live_blocks == 1);
        one.deallocate_sync(p, 100);
        CHECK(pool.state().live_blocks == 0);
#if CCCL_VERSION >= 3001000
        support::scoped_stream const stream;
        weir::interop::cuda_mr::environment const environment(b, stream), also(weir::device_pool_ref(pool), stream);
        b = a;
        CHECK(cuda::mr::get_memory_resource(environment).pool() == weir::device_pool_ref(pool));
        CHECK(cuda::mr::get_memory_resource(also).pool() == weir::device_pool_ref(pool));
#endif
    });
}

TEST_CASE("cuda_mr: pools that the host reaches are resources of the host, and a reference to a pool is one of its space") {
    support::every_schedule([] {
        weir::pinned_pool pinned;
        resource mr(pinned);
        get_property(mr, host_accessible{});
        synchronous_ref<host_accessible> const from_host(mr);
        stream_ordered_ref<host_accessible, device_accessible> const from_both(mr);
        for (std::size_t const alignment : {std::size_t{1}, std::size_t{64}}) {
            int* const p = static_cast<int*>(allocate_sync(from_host, sizeof(int), alignment));
            CHECK(reinterpret_cast<std::uintptr_t>(p) % (alignment < 16 ? 16 : alignment) == 0);
            *p = 3;
            deallocate_sync(from_host, p, sizeof(int), alignment);
        }
        weir::pool_ref<memory_space::device> named(pinned);
        resource through(named);
        CHECK_FALSE(has<decltype(through), host_accessible>);
        support::scoped_stream const stream;
        void* const p = allocate(stream_ordered_ref<device_accessible>(through), stream, 100, 16);
        CHECK(pinned.in_use_bytes() >= 100);
        deallocate(from_both, stream, p, 100, 16);
        CHECK(pinned.in_use_bytes() == 0);
    });
}

// Resources of somebody else, over cudaMalloc, that fail as they are told to.
namespace theirs {

struct foreign_state {
    std::size_t live = 0;
    int device = -1; ///< the device that was current at the last call
    void (*fails)() = nullptr;
};
struct foreign_base {
    foreign_state* state;
    void* take(std::size_t bytes) {
        static_cast<void>(cudaGetDevice(&state->device));
        if (state->fails)
            state->fails();
        void* p = nullptr;
        weir::check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        ++state->live;
        return p;
    }
    void give(void* p) {
        static_cast<void>(cudaGetDevice(&state->device));
        if (state->fails)
            state->fails();
        static_cast<void>(cudaFree(p));
        --state->live;
    }
};
struct new_foreign : foreign_base {
    void* allocate_sync(std::size_t bytes, std::size_t) { return take(bytes); }
    void deallocate_sync(void* p, std::size_t, std::size_t) { give(p); }
    friend bool operator==(new_foreign const& a, new_foreign const& b) { return a.state == b.state; }
    friend bool operator!=(new_foreign const& a, new_foreign const& b) { return !(a == b); }
    friend void get_property(new_foreign const&, device_accessible) noexcept {}
};
struct old_foreign : foreign_base {
    void* allocate(std::size_t bytes, std::size_t) { return take(bytes); }
    void deallocate(void* p, std::size_t, std::size_t) { give(p); }
    friend void get_property(old_foreign const&, device_accessible) noexcept {}
};

} // namespace theirs

namespace {

using theirs::foreign_state, theirs::new_foreign, theirs::old_foreign;
template <class Resource>
using pool_over = weir::pool<upstream<Resource>, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>;

} // namespace

TEST_CASE_TEMPLATE("cuda_mr: any resource is a pool's upstream", Resource, new_foreign, old_foreign) {
    support::every_schedule([] {
        foreign_state state;
        {
            support::scoped_stream const stream;
            pool_over<Resource> pool{upstream<Resource>(Resource{{&state}})};
            CHECK(pool.device() == 0);
            void* const p = pool.allocate(stream, 1000);
            CHECK(state.live == 1);
            weir::check_cuda(cudaMemsetAsync(p, 1, 1000, stream), "cudaMemsetAsync");
            pool.deallocate(stream, p, 1000);
            pool.settle();
            pool.trim();
            CHECK(state.live == 0);

            state.fails = [] { throw std::bad_alloc(); };
            CHECK_THROWS_AS(static_cast<void>(pool.allocate(stream, 1000)), weir::out_of_memory);
            state.fails = [] { throw cuda::cuda_error(cudaErrorMemoryAllocation, "no room"); };
            CHECK_THROWS_AS(static_cast<void>(pool.allocate(stream, 1000)), weir::out_of_memory);
            state.fails = [] { throw cuda::cuda_error(cudaErrorIllegalAddress, "lost"); };
            CHECK_THROWS_AS(static_cast<void>(pool.allocate(stream, 1000)), cuda::cuda_error);
            state.fails = [] { throw std::logic_error("its own"); };
            CHECK_THROWS_AS(static_cast<void>(pool.allocate(stream, 1000)), std::logic_error);
            state.fails = nullptr;
            CHECK(pool.reserved_bytes() == 0);
        }
        upstream<Resource> from{Resource{{&state}}};
        void* const chunk = from.acquire(1000);
        state.fails = [] { throw std::logic_error("its own"); };
        CHECK_FALSE(from.release(chunk, 1000));
        state.fails = nullptr;
        CHECK(from.release(chunk, 1000));
        CHECK(state.live == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("cuda_mr: a resource is asked with its device current, and while somebody captures") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    foreign_state state;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    upstream<new_foreign> from{new_foreign{{&state}}};
    CHECK(from.device_number() == 1);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    support::scoped_stream const stream;
    weir::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    void* const chunk = from.acquire(1000);
    CHECK(state.device == 1);
    state.device = -1;
    CHECK(from.release(chunk, 1000));
    CHECK(state.device == 1);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    weir::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    int now = -1;
    CHECK(cudaGetDevice(&now) == cudaSuccess);
    CHECK(now == 0);
}
#endif

TEST_CASE("cuda_mr: a pool's chunks come from another pool through type erasure") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        weir::device_pool card;
        resource mr(card);
        using ref = stream_ordered_ref<device_accessible>;
        pool_over<ref> pool{upstream<ref>(ref(mr))};
        void* const p = pool.allocate(stream, 1000);
        CHECK(card.in_use_bytes() == pool.reserved_bytes());
        pool.deallocate(stream, p, 1000);
        pool.settle();
        pool.trim();
        CHECK(card.in_use_bytes() == 0);
    });
}

#if CCCL_VERSION >= 3001000
TEST_CASE("cuda_mr: an environment names the stream and the pool") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        recording<memory_space::device> pool;
        weir::interop::cuda_mr::environment const environment(pool, stream);
        CHECK(cuda::get_stream(environment).get() == static_cast<cudaStream_t>(stream));
        auto const mr = cuda::mr::get_memory_resource(environment);
        CHECK(&mr.pool() == &pool);
        CHECK_THROWS_AS(weir::interop::cuda_mr::environment(pool, weir::on_host), weir::usage_error);
    });
}
#endif

#if CCCL_VERSION >= 3002000
namespace {
struct watched_pool : recording<memory_space::device> {
    explicit watched_pool(int& gone) : gone_(&gone) {}
    ~watched_pool() { ++*gone_; }

private:
    int* gone_;
};
} // namespace

TEST_CASE("cuda_mr: an owner of a resource keeps a shared pool, and destroys it last") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        int gone = 0;
        {
            std::optional<cuda::mr::any_resource<device_accessible>> owner(shared_resource<watched_pool>(std::in_place, gone));
            cuda::mr::any_resource<device_accessible> copy = *owner;
            CHECK(copy == *owner);
            void* const p = owner->allocate(cuda::stream_ref(stream), 100, 16);
            CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
            owner.reset();
            CHECK(gone == 0);
            cuda::mr::resource_ref<device_accessible> const ref(copy);
            deallocate(ref, stream, p, 100, 16);
        }
        CHECK(gone == 1);

        weir::device_pool pool;
        cuda::mr::any_resource<device_accessible> const named{resource(pool)}; // owns the name
        cuda::mr::any_resource<device_accessible> copy = named;
        void* const p = copy.allocate_sync(100, 16);
        CHECK(pool.in_use_bytes() != 0);
        copy.deallocate_sync(p, 100, 16);
        CHECK(pool.in_use_bytes() == 0);
    });
}
#endif

#if CCCL_VERSION >= 3004000
TEST_CASE("cuda_mr: a cuda::buffer lives in the pool") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        recording<memory_space::device> pool;
        resource const mr(pool);
        {
            auto const made = cuda::make_buffer<int>(cuda::stream_ref(stream), mr, 1000, cuda::no_init);
            static_assert(std::is_same_v<decltype(made), cuda::buffer<int, device_accessible> const>);
            CHECK(pool.allocations.back().bytes == 4000);
            CHECK(pool.allocations.back().stream == weir::stream_ref(stream));
            cuda::buffer<int, device_accessible> const owns(cuda::stream_ref(stream), shared_resource<weir::device_pool>(std::in_place), 10,
                                                 cuda::no_init);
            CHECK(owns.size() == 10);
        }
        CHECK(pool.live_blocks() == 0);
        CHECK(pool.frees.back().stream == weir::stream_ref(stream));
    });
}
#endif
