// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/peers.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/universal_vector.h>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/vector.hpp>
#include <weir/converting/stored_vector.hpp>
#include <weir/growth/exact.hpp>
#include <weir/interop/thrust.hpp>
#include <weir/recipes.hpp>

using weir::memory_space;
using pool_type = support::recording_pool<memory_space::device>;
template <class T>
using allocator = weir::interop::thrust::allocator<T>;
template <class T>
using vector = thrust::device_vector<T, allocator<T>>;
auto constexpr visible = support::device_memory::visible;

namespace {

// What Thrust makes of an allocator: it keeps it, or a reference to somebody else's.
template <class Policy>
struct keeps_a_reference : std::false_type {};
template <class Allocator, template <class> class System>
struct keeps_a_reference<thrust::detail::execute_with_allocator<Allocator, System>>
    : std::is_reference<Allocator> {};

using blocking = decltype(weir::interop::thrust::par(std::declval<pool_type&>(), cudaStream_t{}));
using unblocking = decltype(weir::interop::thrust::par_nosync(std::declval<pool_type&>(), cudaStream_t{}));

std::vector<int> shuffled(std::size_t count) {
    std::vector<int> host(count);
    std::mt19937_64 random(count);
    for (int& each : host)
        each = static_cast<int>(random() % 100000);
    return host;
}

std::vector<int> sorted(std::vector<int> host) {
    thrust::sort(host.begin(), host.end());
    return host;
}

// A policy whose every part outlives this function, or must not be used.
blocking made_elsewhere(pool_type& pool, weir::stream_ref stream) {
    return weir::interop::thrust::par(pool, stream);
}

// Something else where the policy's maker had its variables.
unsigned overwritten_stack(unsigned seed) {
    unsigned volatile noise[512];
    for (unsigned i = 0; i < 512; ++i)
        noise[i] = seed * (i + 1);
    return noise[seed % 512];
}

template <class T>
std::vector<T> contents(vector<T> const& x) {
    thrust::host_vector<T> const host(x);
    return std::vector<T>(host.begin(), host.end());
}

} // namespace

TEST_CASE("thrust: algorithms take their storage from the pool, on the stream, and give it back") {
    support::every_schedule(
        [] {
            support::scoped_stream stream;
            pool_type pool;
            std::vector<int> const host = shuffled(20000);
            weir::device_vector<int> xs(pool, stream, host);
            std::size_t const before = pool.allocations.size();
            thrust::stable_sort(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size());
            CHECK(xs.to_host_sync<std::vector>() == sorted(host));
            CHECK(pool.allocations.size() > before);
            CHECK(pool.live_blocks() == 1);
            for (auto const& each : pool.frees)
                CHECK(each.stream == weir::stream_ref(stream));

            auto const policy = weir::interop::thrust::par_nosync(pool, stream);
            xs.assign(host);
            weir::synchronize(stream);
            thrust::stable_sort(policy, xs.data(), xs.data() + xs.size());
            CHECK(xs.to_host_sync<std::vector>() == sorted(host));
            CHECK(pool.live_blocks() == 1);
            int const sum = thrust::reduce(policy, xs.data(), xs.data() + xs.size());
            CHECK(sum == thrust::reduce(host.begin(), host.end()));
        },
        visible);
}

TEST_CASE("thrust: a policy owns its allocator, and its copies do") {
    support::every_schedule(
        [] {
            CHECK_FALSE(keeps_a_reference<blocking>::value);
            CHECK_FALSE(keeps_a_reference<unblocking>::value);
            support::scoped_stream stream;
            pool_type pool;
            std::vector<int> const host = shuffled(5000);
            weir::device_vector<int> xs(pool, stream, host);
            weir::synchronize(stream);
            blocking const policy = made_elsewhere(pool, stream);
            CHECK(overwritten_stack(41) == 41u * 42u);
            blocking const copy = policy;
            std::size_t const before = pool.allocations.size();
            thrust::stable_sort(copy, xs.data(), xs.data() + xs.size());
            CHECK(pool.allocations.size() > before);
            CHECK(xs.to_host_sync<std::vector>() == sorted(host));
        },
        visible);
}

TEST_CASE("thrust: making a policy orders an algorithm after the stream's work") {
    // On a GPU the stream does; on a host device system the policy has to wait, or it would sort yesterday's
    // bytes.
    support::every_schedule(
        [] {
            support::scoped_stream stream;
            pool_type pool;
            std::vector<int> const host = shuffled(3000);
            weir::device_vector<int> xs(pool, stream, host), ys(pool, stream, xs);
            thrust::sort(weir::interop::thrust::par(pool, stream), ys.data(), ys.data() + ys.size());
            xs.zero_async();
            thrust::sequence(weir::interop::thrust::par_nosync(pool, stream), xs.data(), xs.data() + xs.size());
            ys.append(xs);
            thrust::inclusive_scan(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + 100,
                                   xs.data());
            CHECK(xs.element_sync(99) == 99 * 100 / 2);
            CHECK(xs.element_sync(100) == 100);
            std::vector<int> const both = ys.to_host_sync<std::vector>();
            REQUIRE(both.size() == 6000);
            CHECK(std::vector<int>(both.begin(), both.begin() + 3000) == sorted(host));
            CHECK(both[3000] == 0);
            CHECK(both[5999] == 2999);
        },
        visible);
}

#if CCCL_VERSION < 3005000
TEST_CASE("thrust: algorithms read and write floats that are stored in fewer bits") {
    support::every_schedule(
        [] {
            support::scoped_stream stream;
            pool_type pool;
            weir::stored_vector<float, __half> xs(pool, stream, 300, 0.5f);
            auto const policy = weir::interop::thrust::par(pool, stream);
            thrust::sequence(policy, xs.data(), xs.data() + xs.size(), 300.f, -1.f);
            thrust::sort(policy, xs.data(), xs.data() + xs.size());
            thrust::transform(policy, xs.data(), xs.data() + xs.size(), xs.data(), thrust::negate<float>());
            thrust::inclusive_scan(policy, xs.data(), xs.data() + 3, xs.data());
            CHECK(thrust::reduce(policy, xs.data(), xs.data() + 5, 0.f) == -(1.f + 3 + 6 + 4 + 5));
            CHECK(xs.element_sync(299) == -300);
        },
        visible);
}
#endif

TEST_CASE("thrust: a device_vector lives in the pool") {
    support::every_schedule(
        [] {
            support::scoped_stream stream;
            pool_type pool;
            {
                vector<int> x(1000, 7, allocator<int>(pool, stream));
                CHECK(pool.live_blocks() == 1);
                CHECK(pool.allocations.back().bytes == 4000);
                CHECK(contents(x) == std::vector<int>(1000, 7));
                x[3] = 5;
                CHECK(x[3] == 5);
                x.resize(2000, 8);
                CHECK(x[3] == 5);
                CHECK(x[1999] == 8);
                x.push_back(9);
                x.shrink_to_fit();
                CHECK(x.size() == 2001);
                vector<int> y = x;
                CHECK(y.get_allocator() == x.get_allocator());
                CHECK(contents(y) == contents(x));
                vector<int> z(std::move(y));
                z.insert(z.begin(), 3);
                CHECK(z[0] == 3);
                x = z;
                CHECK(x.size() == 2002);
                x.swap(z);
                thrust::sort(weir::interop::thrust::par(pool, stream), x.begin(), x.end());
                CHECK(x.front() == 3);
                CHECK(x.back() == 9);
                std::vector<int> const host = shuffled(300);
                vector<int> const w(host.begin(), host.end(), allocator<int>(pool, stream));
                CHECK(contents(w) == host);
                thrust::host_vector<int> const back = w;
                CHECK(std::vector<int>(back.begin(), back.end()) == host);
            }
            CHECK(pool.live_blocks() == 0);
            for (auto const& each : pool.frees)
                CHECK(each.stream == weir::stream_ref(stream));
        },
        visible);
}

TEST_CASE("thrust: a vector's memory is free once the default stream, where it works, is done with it") {
    support::every_schedule([] {
        support::scoped_stream stream; // that does not wait for the default stream by itself
        weir::device_pool pool;
        std::vector<unsigned char> const sevens(std::size_t{1} << 24, 7);
        weir::device_buffer source(pool, cudaStream_t{}, sevens.size()), more(pool, cudaStream_t{}, sevens.size());
        source.assign(sevens.data(), sevens.size());
        void* const first = pool.allocate(stream, sevens.size());
        weir::order_after(cudaStream_t{}, stream);
        for (int i = 0; i < 20; ++i) // so that it lasts
            more.assign(source);
        weir::check_cuda(cudaMemcpyAsync(first, source.data(), sevens.size(), cudaMemcpyDefault, cudaStream_t{}), "cudaMemcpyAsync");
        weir::order::placed_stream freed_on(stream);
        CHECK(weir::interop::thrust::detail::wait_for_default_stream(freed_on, {cudaStream_t{}, 0}));
        CHECK(freed_on.stream == weir::stream_ref(stream));
        pool.deallocate(stream, first, sevens.size());
        void* const second = pool.allocate(stream, sevens.size());
        CHECK(second == first);
        weir::check_cuda(cudaMemsetAsync(second, 1, sevens.size(), stream), "cudaMemsetAsync");
        unsigned char last = 0;
        weir::check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(second) + sevens.size() - 1, 1, cudaMemcpyDefault, stream),
                    "cudaMemcpyAsync");
        weir::synchronize(cudaStream_t{});
        weir::synchronize(stream);
        CHECK(last == 1);
        pool.deallocate(stream, second, sevens.size());
    });
}

TEST_CASE("thrust: the wait for the default stream breaks no capture") {
    support::every_schedule([] {
        cudaStream_t blocking = nullptr;
        weir::check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        support::scoped_stream stream;
        weir::order::placed_stream last(stream);
        for (cudaStream_t const captured : {blocking, static_cast<cudaStream_t>(stream)}) {
            weir::check_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
            bool waited = false;
            std::thread([&] {
                waited = weir::interop::thrust::detail::wait_for_default_stream(last, {cudaStream_t{}, 0});
            }).join();
            CHECK(waited);
            CHECK(last.stream == weir::stream_ref(stream));
            cudaGraph_t graph = nullptr;
            CHECK(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
            weir::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        }
        weir::check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    });
}

namespace {

// As where Thrust's device system is the GPU.
using parent = weir::interop::thrust::detail::source<memory_space::device>;
struct source : parent {
    using parent::allocate_by_default;
    using parent::deallocate;
    using parent::deallocate_by_default;
    using parent::source;
};

} // namespace

TEST_CASE("thrust: what ends while the default stream is captured stays for its graph, and the stream stays out of it") {
    weir::device_pool pool;
    support::scoped_stream const stream;
    support::scoped_stream const other;
    source const from(pool, stream, cudaStreamPerThread);
    void* const p = from.allocate_by_default(1000, 1);
    void* const q = from.allocate_by_default(1000, 1);
    {
        support::capture const graph(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal);
        weir::check_cuda(cudaMemsetAsync(p, 1, 1000, cudaStreamPerThread), "cudaMemsetAsync");
        from.deallocate_by_default(p, 1000, 1);
        CHECK_FALSE(weir::runtime::is_capturing(stream));
        CHECK(pool.state().lost_bytes != 0);
        CHECK(pool.state().live_blocks == 1);

        support::capture own(stream, cudaStreamCaptureModeThreadLocal); // neither graph knows when the other one is gone
        from.deallocate_by_default(q, 1000, 1);
        CHECK(own.unbroken());
        CHECK(pool.state().live_blocks == 1);
    }
    pool.deallocate(stream, q, 1000);
    weir::synchronize(stream);
}

TEST_CASE("thrust: beside the capture of the default stream, memory of the legacy one stays for that graph and no longer") {
    weir::device_pool pool;
    source const from(pool, cudaStreamLegacy, cudaStreamPerThread);
    void* const p = from.allocate_by_default(1000, 1);
    {
        support::capture graph(cudaStreamPerThread, cudaStreamCaptureModeRelaxed);
        weir::check_cuda(cudaMemsetAsync(p, 1, 1000, cudaStreamPerThread), "cudaMemsetAsync");
        from.deallocate_by_default(p, 1000, 1);
        CHECK(graph.unbroken());
    }
    pool.settle();
    CHECK(pool.state().live_blocks == 0);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("thrust: whatever call fails where a vector ends, it is freed once the default stream is done, or stays") {
    struct state {
        explicit state(cudaStream_t by_default) : from(pool, stream, by_default) {
            pool.poisons = false; // that call would fail, too
            CHECK(cudaMemsetAsync(p, 1, 1000, by_default) == cudaSuccess);
        }
        pool_type pool;
        support::scoped_stream stream;
        source from;
        void* p = from.allocate_by_default(1000, 1);
    };
    for (cudaStream_t const by_default : {cudaStreamLegacy, cudaStreamPerThread}) {
        std::uint64_t const runs = support::fault_sweep(
            [=] { return std::make_unique<state>(by_default); },
            [](state& s) {
                s.from.deallocate_by_default(s.p, 1000, 1); // the simulated device tells of a free that comes too early
                s.from.deallocate_by_default(nullptr, 0, 1);
            },
            [=](state& s, support::struck const& fault) {
                CHECK((s.pool.live_blocks() == 0 || fault.for_ever || fault.pair)); // one failure is no lost device
                if (s.pool.live_blocks() == 0)
                    return;
                weir::synchronize(by_default);
                s.from.deallocate(s.p, 1000, 1);
            },
            support::faults::pairs_too);
        CHECK(runs > 10);

        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        state s(by_default);
        simulated_cuda::fail_call(1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
        s.from.deallocate_by_default(s.p, 1000, 1);
        simulated_cuda::clear_faults();
        CHECK(s.pool.live_blocks() == 1); // nobody could wait for the default stream
        weir::synchronize(by_default);
        s.from.deallocate(s.p, 1000, 1);
    }
}

TEST_CASE("thrust: what ends while another device is current is freed behind both devices' default streams") {
    for (int const user : {0, 1}) {
        CAPTURE(user);
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        pool_type pool;
        support::scoped_stream const stream;
        source from(pool, stream);
        void* const p = from.allocate_by_default(1000, 1);
        weir::order_after(weir::order::placed_stream{cudaStream_t{}, 1}, weir::order::placed_stream{stream});
        REQUIRE(cudaSetDevice(user) == cudaSuccess);
        CHECK(cudaMemsetAsync(p, 1, 1000, cudaStream_t{}) == cudaSuccess);
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        from.deallocate_by_default(p, 1000, 1); // which this pool overwrites
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
    }
}
#endif

TEST_CASE("thrust: page-locked memory that is freed on a default stream is freed on that of the device which was current") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    if (!support::two_peers())
        return;
    constexpr std::size_t bytes = 3 * weir::MiB / 2; // two of them do not fit
    weir::pinned_pool pool(weir::pool_options{}.limit(2 * weir::MiB));
    weir::device_pool away;
    weir::device_buffer target(away, cudaStreamLegacy, bytes);
    weir::interop::thrust::pinned_allocator<char> from(pool, cudaStreamLegacy);
    char* const p = from.allocate(bytes);
    std::memset(p, 7, bytes);
    weir::check_cuda(cudaMemcpyAsync(target.data(), p, bytes, cudaMemcpyDefault, cudaStreamLegacy), "cudaMemcpyAsync");
    {
        weir::runtime::device_scope const other(1);
        CHECK(from != weir::interop::thrust::pinned_allocator<char>(pool, cudaStreamLegacy));
        from.deallocate(p, bytes);
        void* const next = pool.allocate(weir::on_host, bytes);
        std::memset(next, 1, bytes);
        pool.deallocate(weir::on_host, next, bytes);
    }
    std::vector<char> seen(bytes);
    weir::check_cuda(cudaMemcpy(seen.data(), target.data(), bytes, cudaMemcpyDefault), "cudaMemcpy");
    CHECK(seen == std::vector<char>(bytes, 7));
}

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
TEST_CASE("thrust: a vector that ends while the default stream uses it keeps its memory so long") {
    support::scoped_stream stream;
    weir::device_pool pool;
    std::size_t const bytes = std::size_t{1} << 26;
    weir::device_buffer source(pool, cudaStream_t{}, bytes), more(pool, cudaStream_t{}, bytes);
    source.zero_async();
    void const* first = nullptr;
    {
        vector<char> x(bytes, 1, allocator<char>(pool, stream));
        first = thrust::raw_pointer_cast(x.data());
        for (int i = 0; i < 100; ++i) // so that it lasts
            more.assign(source);
        weir::check_cuda(cudaMemcpyAsync(thrust::raw_pointer_cast(x.data()), source.data(), bytes, cudaMemcpyDefault, cudaStream_t{}),
                    "cudaMemcpyAsync");
    }
    weir::device_buffer second(pool, stream, bytes);
    CHECK(second.data() == first);
    weir::check_cuda(cudaMemsetAsync(second.data(), 5, bytes, stream), "cudaMemsetAsync");
    weir::synchronize(cudaStream_t{});
    weir::synchronize(stream);
    std::vector<char> host(bytes);
    second.copy_to_sync(host.data());
    CHECK(host == std::vector<char>(bytes, 5));
}

TEST_CASE("thrust: 'par' returns when the algorithm is done, 'par_nosync' while it has not begun") {
    support::scoped_stream stream;
    weir::device_pool pool;
    std::vector<int> const host = shuffled(std::size_t{1} << 24); // some milliseconds
    weir::device_vector<int> xs(pool, stream, host);
    weir::synchronize(stream);
    thrust::sort(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size());
    CHECK(cudaStreamQuery(stream) == cudaSuccess);

    struct gate {
        std::atomic<bool> open{false};
        std::atomic<bool> given_up{false}; // who waits for the stream would wait for ever
        static void wait(void* self) {
            gate& me = *static_cast<gate*>(self);
            for (int turns = 0; !me.open && !me.given_up; ++turns) {
                me.given_up = turns == 20'000'000;
                std::this_thread::yield();
            }
        }
    } closed;
    xs.assign(host);
    weir::check_cuda(cudaLaunchHostFunc(stream, &gate::wait, &closed), "cudaLaunchHostFunc");
    thrust::sort(weir::interop::thrust::par_nosync(pool, stream), xs.data(), xs.data() + xs.size());
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK_FALSE(closed.given_up);
    closed.open = true;
    weir::synchronize(stream);
    CHECK(xs.to_host_sync<std::vector>() == sorted(host));
    CHECK(pool.state().live_blocks == 1); // the storage was freed behind the algorithm
}
#endif

namespace {
template <class Vector, memory_space Space>
struct container {
    using vector = Vector;
    static constexpr memory_space space = Space;
};
using universal = thrust::universal_vector<int, weir::interop::thrust::universal_allocator<int>>;
using pinned = thrust::host_vector<int, weir::interop::thrust::pinned_allocator<int>>;
static_assert(std::is_same_v<universal::reference, int&> && std::is_same_v<pinned::pointer, int*>);
} // namespace

TEST_CASE_TEMPLATE("thrust: vectors that the host reaches live in a managed or pinned pool", Kind,
                   container<universal, memory_space::managed>, container<universal, memory_space::pinned>,
                   container<pinned, memory_space::pinned>, container<pinned, memory_space::managed>) {
    support::every_schedule(
        [] {
            using kind = typename Kind::vector;
            support::scoped_stream const stream;
            support::recording_pool<Kind::space> pool;
            std::vector<int> const host = shuffled(3000);
            {
                kind x(1000, 7, typename kind::allocator_type(pool, stream));
                CHECK(pool.allocations.back().bytes == 4000);
                CHECK(pool.allocations.back().stream == weir::on_host); // the host may touch it at once
                x.resize(1500, 8);
                weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                int* const raw = thrust::raw_pointer_cast(x.data());
                CHECK(raw[999] == 7);
                CHECK(raw[1499] == 8);
                raw[0] = 5;
                CHECK(x.front() == 5);
                kind y(host.begin(), host.end(), typename kind::allocator_type(pool, stream));
                thrust::sort(y.begin(), y.end());
                weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                CHECK(std::vector<int>(y.begin(), y.end()) == sorted(host));
                x = y;
                CHECK(x.get_allocator() == y.get_allocator());
                CHECK(x.size() == 3000);
            }
            CHECK(pool.live_blocks() == 0);
            for (auto const& each : pool.frees)
                CHECK(each.stream == weir::stream_ref(stream));
        },
        visible);
}

namespace {
struct is_odd {
    __host__ __device__ bool operator()(int x) const { return x % 2 != 0; }
};
struct named_algorithm {
    char const* name;
    bool stores_on_the_host_backend; ///< whether it needs storage there, too
    void (*run)(pool_type& pool, cudaStream_t stream, weir::device_vector<int>& xs, weir::device_vector<int>& ys);
};
named_algorithm const algorithms[]{
    {"stable_sort", true,
     [](pool_type& pool, cudaStream_t stream, weir::device_vector<int>& xs, weir::device_vector<int>&) {
         thrust::stable_sort(weir::interop::thrust::par_nosync(pool, stream), xs.data(), xs.data() + xs.size());
     }},
    {"stable_sort_by_key", true,
     [](pool_type& pool, cudaStream_t stream, weir::device_vector<int>& xs, weir::device_vector<int>& ys) {
         thrust::stable_sort_by_key(weir::interop::thrust::par_nosync(pool, stream), xs.data(), xs.data() + xs.size(), ys.data());
     }},
    {"reduce", false,
     [](pool_type& pool, cudaStream_t stream, weir::device_vector<int>& xs, weir::device_vector<int>&) {
         thrust::reduce(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size());
     }},
    {"inclusive_scan", false,
     [](pool_type& pool, cudaStream_t stream, weir::device_vector<int>& xs, weir::device_vector<int>& ys) {
         thrust::inclusive_scan(weir::interop::thrust::par_nosync(pool, stream), xs.data(), xs.data() + xs.size(), ys.data());
     }},
    {"copy_if", false,
     [](pool_type& pool, cudaStream_t stream, weir::device_vector<int>& xs, weir::device_vector<int>& ys) {
         thrust::copy_if(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size(), ys.data(), is_odd{});
     }},
};
} // namespace

TEST_CASE("thrust: each algorithm's storage is counted in the pool, and is given back") {
    support::every_schedule(
        [] {
            for (named_algorithm const& each : algorithms) {
                CAPTURE(each.name);
                support::scoped_stream const stream;
                pool_type pool;
                weir::device_vector<int> xs(pool, stream, shuffled(20000)), ys(pool, stream, shuffled(20000));
                std::size_t const before = pool.allocations.size(), freed = pool.frees.size();
                each.run(pool, stream, xs, ys);
                if (each.stores_on_the_host_backend || !weir::interop::thrust::detail::runs_on_host)
                    CHECK(pool.allocations.size() > before);
                CHECK(pool.allocations.size() - before == pool.frees.size() - freed);
                CHECK(pool.live_blocks() == 2);
            }
        },
        visible);
}

TEST_CASE("thrust: allocators are equal where pool and stream are, also across types") {
    support::every_schedule(
        [] {
            support::scoped_stream a, b;
            pool_type pool, other;
            allocator<int> const x(pool, a);
            allocator<double> const wide = x;
            CHECK(wide.pool() == x.pool());
            CHECK(wide.stream() == x.stream());
            CHECK(allocator<double>(pool, a) == wide);
            CHECK(x != allocator<int>(pool, b));
            CHECK(x != allocator<int>(other, a));
            static_assert(std::is_same_v<allocator<int>::rebind<char>::other, allocator<char>>);
            static_assert(std::is_trivially_copyable_v<allocator<int>>);

            allocator<double> source(pool, b);
            auto const p = source.allocate(10);
            CHECK(reinterpret_cast<std::uintptr_t>(p.get()) % 256 == 0);
            CHECK(pool.allocations.back().bytes == 80);
            source.deallocate(p, 10);
            CHECK(pool.frees.back().bytes == 80);
            CHECK(pool.frees.back().stream == weir::stream_ref(b));
        },
        visible);
}

namespace {
struct alignas(1024) wide {
    char bytes[1024];
};
} // namespace

TEST_CASE("thrust: over-aligned elements are aligned, and sizes that wrap are refused") {
    support::every_schedule(
        [] {
            support::scoped_stream stream;
            pool_type pool;
            allocator<wide> source(pool, stream);
            auto const p = source.allocate(2);
            CHECK(reinterpret_cast<std::uintptr_t>(p.get()) % 1024 == 0);
            source.deallocate(p, 2);
            weir::device_pool card;
            CHECK_THROWS_AS(static_cast<void>(allocator<wide>(card, stream).allocate((std::size_t{1} << 54) + 1)),
                            weir::out_of_memory); // and not a block of 1024 bytes
            CHECK_THROWS_AS(vector<int>(SIZE_MAX / 2, allocator<int>(card, stream)), weir::out_of_memory);
            CHECK(card.state().live_blocks == 0);
        },
        visible);
}

TEST_CASE("thrust: the host is no stream to run on") {
    support::every_schedule(
        [] {
            pool_type pool;
            CHECK_THROWS_AS(weir::interop::thrust::par(pool, weir::on_host), weir::usage_error);
            CHECK_THROWS_AS(weir::interop::thrust::par_nosync(pool, weir::on_host), weir::usage_error);
            CHECK_THROWS_AS(allocator<int>(pool, weir::on_host), weir::usage_error);
        },
        visible);
}

TEST_CASE("thrust: what the host reaches is freed behind the stream, so the pool has to allow it") {
    support::every_schedule([] {
        support::scoped_stream const stream;
        weir::node_pool nodes;
        weir::pinned_pool ordered;
        auto const refused = [](auto make) {
            CHECK(support::sentence_of<weir::usage_error>(make) ==
                  "weir: this pool hands out at once what a container frees, also if work on the stream still uses it; use a "
                  "pool that is stream ordered, such as 'weir::pinned_pool'");
        };
        refused([&] { weir::interop::thrust::pinned_allocator<int>(nodes, stream); });
        refused([&] { weir::interop::thrust::universal_allocator<int>(nodes, stream); });
        refused([&] { weir::interop::thrust::pinned_memory_resource(nodes, stream); });
        CHECK_NOTHROW(weir::interop::thrust::pinned_allocator<int>(ordered, stream));
        CHECK_NOTHROW(weir::interop::thrust::par(nodes, stream)); // an algorithm's own storage is done with when it is freed
    });
}

TEST_CASE("thrust: a pool without room is said to be one, and nothing leaks") {
    for (std::size_t k = 1; k <= 3; ++k) {
        support::every_schedule(
            [&] {
                support::scoped_stream stream;
                pool_type pool;
                weir::device_vector<int> xs(pool, stream, shuffled(20000));
                vector<int> x(10, 7, allocator<int>(pool, stream));
                std::size_t const live = pool.live_blocks();
                pool.fail_at = k;
                bool threw = false;
                try {
                    for (int i = 0; i < 4; ++i)
                        thrust::stable_sort(weir::interop::thrust::par(pool, stream), xs.data(), xs.data() + xs.size());
                } catch (weir::out_of_memory const&) {
                    threw = true;
                }
                CHECK(threw);
                CHECK(pool.live_blocks() == live);
                pool.fail_at = 1;
                CHECK_THROWS_AS(x.resize(1000), weir::out_of_memory);
                CHECK(pool.live_blocks() == live);
                CHECK(contents(x) == std::vector<int>(10, 7));
            },
            visible);
    }
}

namespace {

// Over a pool of CUDA's memory, whose calls fail too. The host backend needs to see that memory.
struct faulty {
    faulty() {
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::make_device_memory_visible(true);
#endif
        x = std::make_unique<vector<int>>(10, 7, allocator<int>(pool, stream));
        xs = std::make_unique<weir::device_vector<int>>(pool, stream, shuffled(500));
        weir::synchronize(stream);
    }
    support::scoped_stream stream;
    weir::pool<weir::upstream::device, weir::recipes::general_placement, weir::reuse::stream_ordered<>,
               weir::growth::exact>
        pool;
    std::unique_ptr<vector<int>> x;
    std::unique_ptr<weir::device_vector<int>> xs;
};

} // namespace

TEST_CASE("thrust: whatever call fails, it is named, nothing is lost, and a vector is what it was") {
    std::uint64_t runs = 0;
    auto const sweep = [&](auto&& operation) {
        runs += support::fault_sweep([] { return std::make_unique<faulty>(); }, operation,
                                     [&](faulty& s, support::struck const& fault) {
                                         CHECK(s.pool.state().live_blocks == 2);
                                         if (fault.threw) {
                                             CHECK(contents(*s.x) == std::vector<int>(10, 7));
                                             operation(s); // works, now that no call fails
                                         }
                                         CHECK(s.pool.state().live_blocks == 2);
                                         s.x.reset(), s.xs.reset();
                                         s.pool.settle();
                                         s.pool.trim();
                                         // Where CUDA never said that no graph may use a block, nobody gets it.
                                         bool const untold = fault.for_ever && fault.hit("cudaStreamIsCapturing");
                                         CHECK((s.pool.reserved_bytes() == 0 || (untold && s.pool.state().lost_bytes != 0)));
                                     });
    };
    sweep([](faulty& s) { weir::interop::thrust::par(s.pool, s.stream); });
    sweep([](faulty& s) {
        thrust::stable_sort(weir::interop::thrust::par(s.pool, s.stream), s.xs->data(), s.xs->data() + s.xs->size());
    });
    sweep([](faulty& s) {
        thrust::stable_sort(weir::interop::thrust::par_nosync(s.pool, s.stream), s.xs->data(), s.xs->data() + s.xs->size());
    });
    sweep([](faulty& s) {
        allocator<int> source(s.pool, s.stream);
        source.deallocate(source.allocate(5), 5);
    });
    sweep([](faulty& s) {
        source const from(s.pool, s.stream);
        from.deallocate(from.allocate_by_default(2400000, 4), 2400000, 4);
    });
    sweep([](faulty& s) { vector<int>(600000, 5, allocator<int>(s.pool, s.stream)); });
    sweep([](faulty& s) { vector<int>{*s.x}; });
    sweep([](faulty& s) { s.x->resize(600000, 8); });
    sweep([](faulty& s) { s.x->push_back(8); });
    sweep([](faulty& s) { s.x->shrink_to_fit(); });
    sweep([](faulty& s) { *s.x = vector<int>(20, 8, allocator<int>(s.pool, s.stream)); });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 40);
#endif
    static_cast<void>(runs);
}
