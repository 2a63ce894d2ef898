// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every pool must do is in tests/contract/pool.cpp; here is what CUDA's own pool adds: attributes, peaks, kinds of memory,
// other processes, graphs, and frees that CUDA refuses.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>
#include <weir/driver/driver_pool.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::driver_pool;
using weir::driver_pool_options;
using weir::GiB;
using weir::KiB;
using weir::MiB;
using weir::on_host;

static_assert(driver_pool::space == weir::memory_space::device);
static_assert(std::is_same_v<driver_pool, weir::driver_pool_of<weir::memory_space::device>>);
static_assert(std::is_same_v<weir::pinned_driver_pool, weir::driver_pool_of<weir::memory_space::pinned>>);
static_assert(std::is_same_v<weir::managed_driver_pool, weir::driver_pool_of<weir::memory_space::managed>>);
static_assert(driver_pool::thread_safe && driver_pool::stream_ordered && driver_pool::default_alignment == 256);
static_assert(!std::is_copy_constructible_v<driver_pool> && !std::is_move_constructible_v<driver_pool>);
static_assert(!std::is_convertible_v<driver_pool_options, driver_pool>);
static_assert(noexcept(std::declval<driver_pool&>().deallocate(on_host, nullptr, 1)));

#if CUDART_VERSION >= 13000
#define WEIR_TEST_DRIVER_POOLS driver_pool, weir::pinned_driver_pool, weir::managed_driver_pool
#else
#define WEIR_TEST_DRIVER_POOLS driver_pool, weir::pinned_driver_pool
#endif

namespace {

// One of weir's own, to compare.
using card = weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>;

template <class Value, class Pool>
Value attribute(Pool const& pool, cudaMemPoolAttr which) {
    Value value{};
    check_cuda(cudaMemPoolGetAttribute(pool.get(), which, &value), "cudaMemPoolGetAttribute");
    return value;
}

#ifdef WEIR_SIMULATED_CUDA
// The next `times` frees fail with `error`.
void refuse_frees(std::uint64_t times, cudaError_t error = cudaErrorUnknown) {
    for (std::uint64_t k = 1; k <= times; ++k)
        simulated_cuda::fail_call("cudaFreeAsync", k, error);
}
#endif

// A captured graph and its executable.
class launchable {
public:
    template <class Body>
    launchable(cudaStream_t s, Body&& body, unsigned long long flags = 0) {
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        body();
        check_cuda(cudaStreamEndCapture(s, &graph_), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&exec_, graph_, flags), "cudaGraphInstantiate");
    }
    launchable(launchable const&) = delete;
    launchable& operator=(launchable const&) = delete;
    ~launchable() {
        static_cast<void>(cudaGraphExecDestroy(exec_));
        static_cast<void>(cudaGraphDestroy(graph_));
    }
    void launch(cudaStream_t s) { check_cuda(cudaGraphLaunch(exec_, s), "cudaGraphLaunch"); }

private:
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;
};

} // namespace

TEST_CASE("driver_pool: sets what its options say") {
    support::every_schedule([] {
        for (int off = -1; off < 3; ++off) {
            driver_pool_options options;
            if (off >= 0)
                options.name("mine").release_threshold(7 * MiB).follow_event_dependencies(off != 0).allow_opportunistic(off != 1)
                    .allow_internal_dependencies(off != 2);
            driver_pool const pool(options);
            CHECK(pool.name() == (off < 0 ? "driver" : "mine"));
            CHECK(pool.device() == 0);
            CHECK(pool.limit_bytes() == SIZE_MAX);
            CHECK(attribute<std::uint64_t>(pool, cudaMemPoolAttrReleaseThreshold) == (off < 0 ? UINT64_MAX : 7 * MiB));
            CHECK(attribute<int>(pool, cudaMemPoolReuseFollowEventDependencies) == (off != 0));
            CHECK(attribute<int>(pool, cudaMemPoolReuseAllowOpportunistic) == (off != 1));
            CHECK(attribute<int>(pool, cudaMemPoolReuseAllowInternalDependencies) == (off != 2));
        }
    });
}

TEST_CASE("driver_pool: knows what is in use and reserved, now and at most") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        CHECK(pool.in_use_bytes() == 0);
        CHECK(pool.reserved_bytes() == 0);
        void* const a = pool.allocate(s, 1 * MiB);
        void* const b = pool.allocate(s, 2 * MiB);
        CHECK(pool.in_use_bytes() == 3 * MiB);
        CHECK(pool.reserved_bytes() >= 3 * MiB);
        weir::memory_report const state = pool.state();
        CHECK(state.name == "driver");
        CHECK(state.live_blocks == 2);
        CHECK(state.in_use_bytes == 3 * MiB);
        CHECK(state.reserved_bytes == pool.reserved_bytes());
        CHECK(state.limit_bytes == SIZE_MAX);
        CHECK_SAYS(pool.report(), "pool 'driver' (device, the driver's pool): 3 MiB in use in 2 blocks, ");
        CHECK_SAYS(pool.report(), " reserved, at most 3 MiB and ");
        CHECK_SAYS(pool.report(), ", limit none");
        pool.deallocate(s, b, 2 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.in_use_bytes() == 1 * MiB);
        CHECK(pool.peak_in_use_bytes() == 3 * MiB);
        CHECK(pool.peak_reserved_bytes() >= 3 * MiB);
        weir::runtime::cuda_pool_statistics const all = pool.statistics();
        CHECK(all.in_use_bytes == 1 * MiB);
        CHECK(all.peak_in_use_bytes == 3 * MiB);
        CHECK(all.reserved_bytes == pool.reserved_bytes());
        CHECK(all.peak_reserved_bytes == pool.peak_reserved_bytes());
        CHECK_SAYS(pool.report(), "1 MiB in use in 1 block, ");
        pool.reset_peaks();
        CHECK(pool.peak_in_use_bytes() == 1 * MiB);
        CHECK(pool.peak_reserved_bytes() == pool.reserved_bytes());
        pool.deallocate(s, a, 1 * MiB);
    });
}

TEST_CASE("driver_pool: keeps memory over a synchronisation, and behind 'settle' trim finds what was just freed") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        for (bool const waits : {true, false}) { // or 'settle' alone does
            void* const p = pool.allocate(s, 64 * MiB);
            check_cuda(cudaMemsetAsync(p, 0, 64 * MiB, s), "cudaMemsetAsync");
            pool.deallocate(s, p, 64 * MiB);
            if (waits)
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            std::size_t const held = pool.reserved_bytes();
            CHECK(held >= 64 * MiB);
            CHECK((!waits || pool.trim(held) == 0));
            pool.settle();
            CHECK(pool.trim() == held);
            CHECK(pool.reserved_bytes() == 0);
            CHECK(pool.trim() == 0);
        }
    });
}

TEST_CASE_TEMPLATE("driver_pool: 'reserve' gets memory ahead of need, as of every pool that grows"
                   * doctest::test_suite("fills the card"), Pool, WEIR_TEST_DRIVER_POOLS, card) {
    using options = std::conditional_t<std::is_same_v<Pool, card>, weir::pool_options, driver_pool_options>;
    support::every_schedule([] {
        support::scoped_stream const s;
        Pool pool{options{}.reserve(8 * MiB)};
        CHECK(pool.reserved_bytes() >= 8 * MiB);
        CHECK(pool.state().live_blocks == 0);
        pool.reserve(32 * MiB);
        std::size_t const reserved = pool.reserved_bytes();
        CHECK(reserved >= 32 * MiB);
        pool.reserve(16 * MiB); // it is there
        pool.reserve(0);
        void* const p = pool.allocate(s, 24 * MiB);
        CHECK(pool.reserved_bytes() == reserved);
        check_cuda(cudaMemsetAsync(p, 1, 24 * MiB, s), "cudaMemsetAsync");
        pool.reserve(64 * MiB);
        CHECK(pool.reserved_bytes() >= 64 * MiB);
        CHECK(pool.in_use_bytes() >= 24 * MiB);
        CHECK(pool.in_use_bytes() < 25 * MiB);
        CHECK_THROWS_AS(pool.reserve(SIZE_MAX), weir::out_of_memory);
        CHECK_THROWS_AS(pool.reserve(std::size_t{1} << 50), weir::out_of_memory);
        CHECK(pool.in_use_bytes() >= 24 * MiB);
        pool.deallocate(s, p, 24 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    });
    CHECK(sentence_of<weir::out_of_memory>([] { Pool pool{options{}.reserve(std::size_t{1} << 50)}; }) != "");
}

TEST_CASE("driver_pool: what was reserved stays over a synchronisation, whatever the release threshold was") {
    for (std::size_t const threshold : {0 * MiB, 2 * MiB, 64 * MiB, 100 * MiB})
        for (bool const held_before : {false, true}) {
            CAPTURE(threshold);
            CAPTURE(held_before);
            support::every_schedule([&] {
                support::scoped_stream const s;
                driver_pool pool{driver_pool_options{}.release_threshold(threshold)};
                if (held_before)
                    pool.deallocate(s, pool.allocate(s, 128 * MiB), 128 * MiB);
                for (std::size_t const bytes : {64 * MiB, 1 * MiB}) {
                    pool.reserve(bytes);
                    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                    CHECK(pool.reserved_bytes() >= 64 * MiB);
                    CHECK(attribute<std::uint64_t>(pool, cudaMemPoolAttrReleaseThreshold) >= threshold);
                }
                pool.trim();
                CHECK(pool.reserved_bytes() == 0);
            });
        }
}

TEST_CASE("driver_pool: within its limit all of it can be reserved, whatever lies free, and no capture breaks") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool{driver_pool_options{}.limit(32 * MiB)};
        pool.deallocate(s, pool.allocate(s, 6 * MiB), 6 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        support::capture captured(s);
        pool.reserve(32 * MiB);
        CHECK(pool.reserved_bytes() == 32 * MiB);
        CHECK(captured.unbroken());
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: a trim in which another thread allocates more than goes back gave nothing back") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    pool.deallocate_sync(pool.allocate_sync(1 * MiB), 1 * MiB);
    void* more = nullptr;
    static std::function<void()> meanwhile;
    meanwhile = [&] {
        if (simulated_cuda::calls("cudaMemPoolTrimTo") == 0)
            return;
        simulated_cuda::at_switch_points(nullptr);
        more = pool.allocate(s, 64 * MiB);
    };
    simulated_cuda::at_switch_points([] { meanwhile(); });
    CHECK(pool.trim() == 0);
    REQUIRE(more != nullptr);
    pool.deallocate(s, more, 64 * MiB);
}
#endif

TEST_CASE("driver_pool: what is refused is named as CUDA was asked for it, and advised on as its options are"
          * doctest::test_suite("fills the card")) {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        CHECK_SAYS(sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(s, std::size_t{1} << 60)); }),
                   "weir: out of memory: pool 'driver' cannot hand out 1152921504606846976 bytes (1 EiB): CUDA's memory pool "
                   "found no 1152921504606846976 bytes (1 EiB) in the device's memory; ask for less (in use 0 B, reserved 0 B, "
                   "limit none, free on the device ");
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        driver_pool const bounded{driver_pool_options{}.limit(64 * MiB)};
        CHECK(bounded.refused(100 * MiB, 1).reason == "CUDA's memory pool found no 104857600 bytes (100 MiB) within its limit; ask for "
                                               "less or raise the limit");
        CHECK(bounded.refused(64 * MiB, 1).reason == "CUDA's memory pool found no 67108864 bytes (64 MiB) in the device's memory; free "
                                              "something"); // the limit leaves room
        CHECK_SAYS(bounded.refused(std::size_t{1} << 60, 1).reason, "in the device's memory; ask for less");
        CHECK(weir::pinned_driver_pool().refused(1, 1).reason ==
              "CUDA's memory pool found no 1 byte in the machine's memory; free something");
    });
}

TEST_CASE_TEMPLATE("driver_pool: an alignment beyond CUDA's is refused with the pool that has it", Pool, WEIR_TEST_DRIVER_POOLS) {
    support::every_schedule([] {
        support::scoped_stream const s;
        Pool pool;
        std::string const own = Pool::space == weir::memory_space::device   ? "device_pool"
                                : Pool::space == weir::memory_space::pinned ? "pinned_pool"
                                                                            : "managed_pool";
        for (std::size_t const alignment : {std::size_t{512}, 1 * MiB, SIZE_MAX / 2 + 1}) {
            for (weir::stream_ref const on : {weir::stream_ref(s), weir::stream_ref(on_host)})
                CHECK(pool.try_allocate(on, 10, alignment) == nullptr);
            CHECK_SAYS(sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(s, 10, alignment)); }),
                       "weir: out of memory: pool 'driver' cannot hand out 10 bytes: CUDA's memory pools align blocks to 256 "
                       "bytes; for an alignment of " + std::to_string(alignment) + " use " + own + " (in use 0 B");
            CHECK_FALSE(pool.can_hold(10, alignment));
        }
        CHECK(pool.can_hold(10, 256));
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE_TEMPLATE("driver_pool: keeps to its limit", Pool, driver_pool, weir::pinned_driver_pool) {
    support::every_schedule([] {
        support::scoped_stream const s;
        Pool pool{driver_pool_options{}.limit(64 * MiB)};
        CHECK(pool.limit_bytes() == 64 * MiB);
        CHECK(pool.can_hold(64 * MiB, 256));
        CHECK_FALSE(pool.can_hold(64 * MiB + 1, 256));
        CHECK_SAYS(pool.report(), ", limit 64 MiB");
        Pool small{driver_pool_options{}.limit(1 * MiB)}; // of which CUDA makes a page of 2 MiB
        CHECK(small.can_hold(2 * MiB, 256));
        CHECK_FALSE(small.can_hold(2 * MiB + 1, 256));
        std::vector<void*> blocks;
        for (int i = 0; i < 2; ++i)
            blocks.push_back(pool.allocate(s, 32 * MiB));
        CHECK(pool.reserved_bytes() == 64 * MiB);
        CHECK(pool.try_allocate(s, 16 * MiB) == nullptr);
        try {
            static_cast<void>(pool.allocate(s, 32 * MiB));
            FAIL_CHECK("nothing was thrown");
        } catch (weir::out_of_memory const& error) {
            CHECK(error.asked_bytes() == 32 * MiB);
            CHECK(error.limit_bytes() == 64 * MiB);
            CHECK(error.reserved_bytes() == 64 * MiB);
            CHECK(error.in_use_bytes() == 64 * MiB);
            CHECK_SAYS(error.reason(), "free something or raise the limit");
        }
        for (void* each : blocks)
            pool.deallocate(s, each, 32 * MiB);
    });
}

TEST_CASE("driver_pool: a refusal waits for what was freed behind work, on whichever stream, and breaks no capture") {
    support::every_schedule([] {
        support::scoped_stream const s, other, captured;
        driver_pool pool{driver_pool_options{}.limit(64 * MiB)};
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i)
            blocks.push_back(pool.allocate(s, 16 * MiB));
        for (void* const each : blocks) {
            check_cuda(cudaMemsetAsync(each, 1, 16 * MiB, s), "cudaMemsetAsync");
            pool.deallocate(s, each, 16 * MiB);
        }
        support::capture graph(captured);
        for (weir::stream_ref const on : {weir::stream_ref(other), weir::stream_ref(on_host)})
            for (std::size_t const bytes : {32 * MiB, 48 * MiB}) { // 48: no two pieces of 32 MiB have room for that
                void* const p = pool.try_allocate(on, bytes);
                CHECK(p != nullptr);
                CHECK(pool.try_allocate(on, 48 * MiB) == nullptr);
                pool.deallocate(on, p, bytes);
            }
        CHECK(graph.unbroken());
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: what the limit, or the memory there is, never has room for is refused without a wait") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_memory(1 * GiB), support::report_all);
    support::scoped_stream const s;
    for (std::size_t const limit : {64 * MiB, SIZE_MAX}) {
        CAPTURE(limit);
        driver_pool pool{driver_pool_options{}.limit(limit)};
        void* const p = pool.allocate(s, 16 * MiB);
        check_cuda(cudaMemsetAsync(p, 1, 16 * MiB, s), "cudaMemsetAsync");
        pool.deallocate(s, p, 16 * MiB);
        std::size_t const pending = simulated_cuda::pending(), held = pool.reserved_bytes();
        for (weir::stream_ref const on : {weir::stream_ref(s), weir::stream_ref(on_host)})
            CHECK(pool.try_allocate(on, limit == SIZE_MAX ? 1 * GiB + 1 : limit + 1) == nullptr);
        CHECK_THROWS_AS(pool.reserve(2 * GiB), weir::out_of_memory);
        CHECK(simulated_cuda::pending() == pending);
        CHECK(pool.reserved_bytes() == held);
    }
}

TEST_CASE("driver_pool: a device without memory pools says what to use") {
    simulated_cuda::world const world;
    auto const told = [](auto make) {
        simulated_cuda::fail_call("cudaMemPoolCreate", 1, cudaErrorNotSupported);
        return sentence_of<weir::cuda_error>(make);
    };
    CHECK_SAYS(told([] { driver_pool pool; }), "there are no such memory pools here; use device_pool");
    CHECK_SAYS(told([] { weir::pinned_driver_pool pool; }), "use pinned_pool");
#if CUDART_VERSION >= 13000
    CHECK_SAYS(told([] { weir::managed_driver_pool pool; }), "use managed_pool");
#endif
}
#endif

TEST_CASE("driver_pool: memory is opened to devices that there are, and that can reach it") {
    {
        driver_pool pool;
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { pool.enable_access_from(1000); }),
                   "weir: there is no device 1000; CUDA sees ");
        CHECK_THROWS_AS(pool.enable_access_from(-7), weir::usage_error);
    }
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).without_peers(), support::report_all);
    driver_pool pool;
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { pool.enable_access_from(1); }),
               "weir: device 1 cannot use memory of device 0");
    pool.enable_access_from(0);
    CHECK(simulated_cuda::calls("cudaMemPoolSetAccess") == 1);
#endif
}

TEST_CASE("driver_pool: is made on the device that is named, and works whichever is current") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    driver_pool_options options;
    options.device(devices - 1);
    driver_pool pool(options);
    CHECK(pool.device() == devices - 1);
    CHECK(weir::runtime::current_device() == 0);
    void* const p = pool.allocate_sync(1 * MiB);
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
    CHECK(attributes.device == devices - 1);
    pool.deallocate_sync(p, 1 * MiB);
    pool.settle();
    CHECK(weir::runtime::current_device() == 0);
    options.device(12345);
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { driver_pool nowhere(options); }), "weir: there is no device 12345; CUDA sees ");
}

// ---- kinds of memory --------------------------------------------------------------------------------------------------

namespace {

// A kind of memory that the host reaches too, what CUDA calls it, and what a report does.
template <class Pool, cudaMemoryType Type>
struct everybodys {
    using pool = Pool;
    static constexpr cudaMemoryType type = Type;
    static bool is_pinned() { return Type == cudaMemoryTypeHost; }
};
using pinned_kind = everybodys<weir::pinned_driver_pool, cudaMemoryTypeHost>;
#if CUDART_VERSION >= 13000
#define WEIR_TEST_EVERYBODYS pinned_kind, everybodys<weir::managed_driver_pool, cudaMemoryTypeManaged>
#else
#define WEIR_TEST_EVERYBODYS pinned_kind
#endif

} // namespace

TEST_CASE_TEMPLATE("driver_pool: pinned and managed memory is the host's and every device's", Kind, WEIR_TEST_EVERYBODYS) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    auto const place = Kind::is_pinned() ? weir::memory_location::host_node(0) : weir::memory_location::device(0);
    for (driver_pool_options options : {driver_pool_options{}, driver_pool_options{}.location(place)}) {
        typename Kind::pool pool(options.name("staging"));
        CHECK(pool.device() == 0);
        support::scoped_stream const s;
        auto* const p = static_cast<unsigned char*>(pool.allocate(s, 1 * MiB));
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        cudaPointerAttributes attributes{};
        check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
        CHECK(attributes.type == Kind::type);
        p[0] = 1;
        CHECK_SAYS(pool.report(), Kind::is_pinned() ? "pool 'staging' (pinned, the driver's pool): 1 MiB in use in 1 block, "
                                                    : "pool 'staging' (managed, the driver's pool): 1 MiB in use in 1 block, ");
        for (int each = 0; each < devices; ++each) {
            weir::runtime::device_scope const there(each);
            support::scoped_stream const on;
#ifdef WEIR_SIMULATED_CUDA // which reports a device that the pool has not let in
            CHECK(simulated_cuda::launch(on, {}, {{p, 1 * MiB}}) == cudaSuccess);
#endif
            check_cuda(cudaMemsetAsync(p, 2 + each, 1 * MiB, on), "cudaMemsetAsync");
            check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
            CHECK(p[1 * MiB - 1] == 2 + each);
        }
        pool.deallocate(s, p, 1 * MiB);
        pool.settle();
        CHECK(pool.in_use_bytes() == 0);
        CHECK(pool.trim() > 0);
        CHECK(pool.reserved_bytes() == 0);
    }
}

#if CUDART_VERSION >= 13000
#ifdef WEIR_SIMULATED_CUDA // asking a GPU for more managed memory than it has can hang it
TEST_CASE("driver_pool: says what to do where managed memory is out") {
    simulated_cuda::world const world;
    weir::managed_driver_pool pool;
    CHECK(pool.try_allocate(on_host, std::size_t{1} << 60) == nullptr);
    CHECK_SAYS(sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate_sync(std::size_t{1} << 60)); }),
               "in the machine's memory; ask for less");
}
#endif
#endif

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: a pool lets another device in, and 'settle' waits for it from then on") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    pool.enable_access_from(1);
    void* const p = pool.allocate_sync(1 * MiB);
    {
        weir::runtime::device_scope const other(1);
        support::scoped_stream const there;
        CHECK(simulated_cuda::launch(there, {}, {{p, 1 * MiB}}) == cudaSuccess); // else the world reports it
        REQUIRE(simulated_cuda::pending() != 0);
        pool.settle();
        CHECK(simulated_cuda::pending() == 0);
    }
    pool.deallocate_sync(p, 1 * MiB);
}

TEST_CASE("driver_pool: a graph that another device runs keeps its block until the end, which waits for it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    auto pool = std::make_unique<driver_pool>();
    pool->enable_access_from(1);
    void* const p = pool->allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::scoped_stream const there;
        launchable graph(there, [&] {
            check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, there), "cudaMemsetAsync");
            pool->deallocate(there, p, 1 * MiB);
        });
        graph.launch(there);
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        REQUIRE(simulated_cuda::pending() != 0);
        pool.reset();
        CHECK(simulated_cuda::pending() == 1); // the free alone
    }
}

TEST_CASE("driver_pool: what another device's default stream frees while it is captured stays until the end") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::capture graph(cudaStreamPerThread);
        pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
        CHECK(graph.unbroken());
    }
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    pool.settle();
    CHECK(pool.state().lost_bytes == 1 * MiB);
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 1 * MiB);
}

TEST_CASE("driver_pool: what another device's legacy stream frees beside a capture goes back behind all work") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    pool.enable_access_from(1);
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, cudaStreamLegacy), "cudaMemsetAsync");
    cudaStream_t blocking = nullptr;
    check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
    {
        support::capture graph(blocking);
        pool.deallocate(cudaStreamLegacy, p, 1 * MiB);
        CHECK(graph.unbroken());
    }
    check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    pool.settle();
    CHECK(pool.state().lost_bytes == 0);
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
}
#endif

// ---- other processes --------------------------------------------------------------------------------------------------

TEST_CASE("driver_pool: exports itself and its blocks where it was made for that, and else says what to set") {
    support::every_schedule([] {
        driver_pool_options options;
        options.handle_types(cudaMemHandleTypePosixFileDescriptor);
        driver_pool pool(options), early(options), closed;
        int const descriptor = pool.export_descriptor();
        CHECK(descriptor >= 0);
        CHECK(close(descriptor) == 0);
        CHECK(sentence_of<weir::usage_error>([&] { static_cast<void>(pool.export_fabric()); }) ==
              "weir: this pool was not made for other processes; set driver_pool_options::handle_types to "
              "cudaMemHandleTypeFabric");
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(closed.export_descriptor()); }),
                   "handle_types to cudaMemHandleTypePosixFileDescriptor");
        void* const p = pool.allocate_sync(1000);
        static_cast<void>(pool.export_block(p));
        void* const kept = closed.allocate_sync(1000);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(closed.export_block(kept)); }),
                   "handle_types to cudaMemHandleTypePosixFileDescriptor");
        void* const unknown = early.allocate_sync(1000);
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(early.export_block(unknown)); }),
                   "weir: cudaMemPoolExportPointer failed with cudaErrorInvalidValue (1): export the pool itself first");
        early.deallocate_sync(unknown, 1000);
        closed.deallocate_sync(kept, 1000);
        pool.deallocate_sync(p, 1000);
    });
}

// ---- capture ------------------------------------------------------------------------------------------------------------

TEST_CASE("driver_pool: what a graph allocates and frees is there in each of its launches, and none of the pool's") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        unsigned char last = 0;
        launchable graph(s, [&] {
            void* const p = pool.allocate(s, 64 * MiB);
            CHECK(pool.state().live_blocks == 0);
            check_cuda(cudaMemsetAsync(p, 5, 64 * MiB, s), "cudaMemsetAsync");
            check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(p) + 64 * MiB - 1, 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
            pool.deallocate(s, p, 64 * MiB);
        });
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.in_use_bytes() == 0);
        for (int round = 0; round < 3; ++round) {
            last = 0;
            graph.launch(s);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(last == 5);
        }
        support::capture nodes(s);
        pool.deallocate(s, pool.allocate(s, 1 * MiB), 1 * MiB);
        std::size_t count = 0;
        CHECK(nodes.unbroken(&count));
        CHECK(count == 2);
    });
}

TEST_CASE("driver_pool: what graphs hold is the device's, is counted, and goes back by its member") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        pool.trim_graph_memory();
        std::size_t const before = pool.graph_memory_bytes();
        {
            launchable graph(s, [&] {
                void* const p = pool.allocate(s, 64 * MiB);
                check_cuda(cudaMemsetAsync(p, 1, 64 * MiB, s), "cudaMemsetAsync");
                pool.deallocate(s, p, 64 * MiB);
            });
            graph.launch(s);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(pool.graph_memory_bytes() >= before + 64 * MiB);
            CHECK(driver_pool().graph_memory_bytes() == pool.graph_memory_bytes()); // not this pool's
            CHECK(pool.reserved_bytes() == 0);
        }
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        std::size_t const held = pool.graph_memory_bytes();
        CHECK(pool.trim_graph_memory() == held - before);
        CHECK(pool.graph_memory_bytes() == before);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: before it refuses, what CUDA keeps for graphs goes back") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_memory(128 * MiB), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    {
        launchable graph(s, [&] { pool.deallocate(s, pool.allocate(s, 96 * MiB), 96 * MiB); });
        graph.launch(s);
    }
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    void* const p = pool.try_allocate(s, 96 * MiB);
    CHECK(p != nullptr);
    pool.deallocate(s, p, 96 * MiB);
}
#endif

TEST_CASE("driver_pool: what a graph allocates and does not free is the program's to free, once after each launch") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* p = nullptr;
        {
            launchable graph(s, [&] {
                p = pool.allocate(s, 1 * MiB);
                check_cuda(cudaMemsetAsync(p, 6, 1 * MiB, s), "cudaMemsetAsync");
            });
            for (int round = 0; round < 3; ++round) {
                graph.launch(s);
                unsigned char last = 0;
                check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(p) + 1 * MiB - 1, 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
                pool.deallocate(s, p, 1 * MiB);
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                CHECK(last == 6);
                CHECK(pool.state().live_blocks == 0);
            }
        }
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("driver_pool: several graphs may free what a graph allocates, and the program too") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* const own = pool.allocate(s, 1 * MiB); // in whose place nothing of the graphs' is counted
        void* p = nullptr;
        launchable makes(s, [&] { p = pool.allocate(s, 1 * MiB); });
        auto const end = [&] {
            check_cuda(cudaMemsetAsync(p, 7, 1 * MiB, s), "cudaMemsetAsync");
            pool.deallocate(s, p, 1 * MiB);
        };
        launchable ends(s, end);
        launchable ends_too(s, end);
        for (launchable* each : {&ends, &ends_too, &ends}) {
            makes.launch(s);
            each->launch(s);
        }
        makes.launch(s);
        end(); // by the program this time
        makes.launch(s);
        ends.launch(s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.state().live_blocks == 1);
        CHECK(pool.state().lost_bytes == 0);
        pool.deallocate(s, own, 1 * MiB);
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE("driver_pool: the captured free of a graph's block waits for the work on other streams that uses it") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        driver_pool pool;
        void* p = nullptr;
        launchable makes(s, [&] { p = pool.allocate(s, 1 * MiB); });
        for (bool const marked : {true, false}) {
            makes.launch(s);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            if (marked)
                pool.used_on(p, other);
            check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, other), "cudaMemsetAsync");
            if (!marked)
                pool.last_used_on(p, other);
            launchable ends(s, [&] { pool.deallocate(s, p, 1 * MiB); });
            CHECK(cudaStreamQuery(other) == cudaSuccess);
            ends.launch(s);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        }
        CHECK(pool.state().lost_bytes == 0);
    });
}

TEST_CASE("driver_pool: a graph's block stays, and is marked as before, while a marked stream is captured") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        driver_pool pool;
        void* p = nullptr;
        launchable makes(s, [&] { p = pool.allocate(s, 1 * MiB); });
        makes.launch(s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.used_on(p, other);
        {
            support::capture graph(other);
            pool.deallocate(s, p, 1 * MiB);
            CHECK(graph.unbroken());
        }
        check_cuda(cudaMemsetAsync(p, 2, 1 * MiB, other), "cudaMemsetAsync"); // behind the free that was not made
        pool.deallocate(s, p, 1 * MiB);                                 // after it, or the device tells
        void* const next = pool.allocate(s, 1 * MiB);
        check_cuda(cudaMemsetAsync(next, 3, 1 * MiB, s), "cudaMemsetAsync");
        pool.deallocate(s, next, 1 * MiB);
        CHECK(pool.state().lost_bytes == 0);
        makes.launch(s); // CUDA refuses this while the block is out
        pool.deallocate(s, p, 1 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

TEST_CASE("driver_pool: each launch frees what the one before allocated where it was told to, and the program the last") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* p = nullptr;
        launchable graph(
            s,
            [&] {
                p = pool.allocate(s, 1 * MiB);
                check_cuda(cudaMemsetAsync(p, 6, 1 * MiB, s), "cudaMemsetAsync");
            },
            cudaGraphInstantiateFlagAutoFreeOnLaunch);
        for (int round = 0; round < 3; ++round)
            graph.launch(s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.state().live_blocks == 0); // a pool that ends now says nothing of leaks
        pool.deallocate(s, p, 1 * MiB);
        CHECK(pool.state().live_blocks == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: the free of a graph's block is made, by the program and in a capture, where one call fails and passes") {
    for (char const* const call : {"cudaFreeAsync", "cudaThreadExchangeStreamCaptureMode"})
        for (bool const captured : {false, true}) {
            CAPTURE(call);
            CAPTURE(captured);
            simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
            support::scoped_stream const s;
            driver_pool pool;
            void* p = nullptr;
            auto const free = [&] {
                simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
                pool.deallocate(s, p, 1 * MiB);
                CHECK(simulated_cuda::failed_calls() == 1);
                simulated_cuda::clear_faults();
            };
            launchable graph(s, [&] {
                p = pool.allocate(s, 1 * MiB);
                if (captured)
                    free();
            });
            for (int round = 0; round < 2; ++round) { // the second launch needs the free of the first one's block
                graph.launch(s);
                if (!captured && round == 0)
                    free();
            }
            if (!captured)
                pool.deallocate(s, p, 1 * MiB);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(pool.state().lost_bytes == 0);
        }
}

TEST_CASE("driver_pool: a graph's block that CUDA refuses is not lost: the graph has it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    void* p = nullptr;
    launchable graph(s, [&] {
        p = pool.allocate(s, 1 * MiB);
        refuse_frees(2);
        pool.deallocate(s, p, 1 * MiB);
    });
    refuse_frees(2, cudaErrorInvalidValue); // as of one that no launch has made yet
    pool.deallocate(s, p, 1 * MiB);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(pool.state().lost_bytes == 0);
    graph.launch(s);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    {
        support::capture ends(s); // whose launches would free it
        refuse_frees(2);
        pool.deallocate(s, p, 1 * MiB);
        CHECK(ends.unbroken());
    }
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
    pool.deallocate(s, p, 1 * MiB);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

TEST_CASE("driver_pool: what can be exported is not taken into a graph, and a sentence says so") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool_options options;
    options.handle_types(cudaMemHandleTypePosixFileDescriptor);
    driver_pool pool(options);
    support::capture graph(s);
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(pool.allocate(s, 1000)); }),
               "into a graph; allocate before the capture, or from a pool without 'handle_types'");
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(pool.state().live_blocks == 0);
    CHECK(graph.unbroken());
}
#endif

TEST_CASE("driver_pool: the legacy stream breaks no capture of a stream that waits for it, and what it frees goes back at once") {
    for (bool const marked : {false, true})
        support::every_schedule([&] {
            support::scoped_stream const other;
            cudaStream_t blocking = nullptr;
            check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
            driver_pool pool;
            void* const p = pool.allocate_sync(20 * MiB);
            check_cuda(cudaMemsetAsync(p, 1, 20 * MiB, cudaStreamLegacy), "cudaMemsetAsync");
            if (marked)
                pool.used_on(p, other);
            {
                support::capture graph(blocking);
                CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(pool.allocate(cudaStreamLegacy, 1000)); }),
                           "weir: nothing can be allocated on the legacy default stream while a stream is captured");
                pool.deallocate(cudaStreamLegacy, p, 20 * MiB);
                CHECK(cudaPeekAtLastError() == cudaSuccess);
                CHECK(graph.unbroken());
            }
            CHECK(pool.state().live_blocks == 0);
            CHECK(pool.state().lost_bytes == 0);
            pool.settle();
            CHECK(pool.in_use_bytes() == 0);
            CHECK(pool.trim() > 0);
            CHECK(pool.reserved_bytes() == 0);
            check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
        });
}

TEST_CASE("driver_pool: a free of memory from outside the graph does not break the capture, and the graph keeps the memory") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        driver_pool pool;
        void* const p = pool.allocate(s, 20 * MiB);
        void* const q = pool.allocate(s, 20 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        check_cuda(cudaMemsetAsync(q, 1, 20 * MiB, other), "cudaMemsetAsync");
        pool.used_on(q, other);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t launched = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        check_cuda(cudaMemsetAsync(p, 2, 20 * MiB, s), "cudaMemsetAsync");
        pool.deallocate(s, p, 20 * MiB);
        pool.deallocate(s, q, 20 * MiB); // the event of another stream would break the capture
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        REQUIRE(cudaStreamEndCapture(s, &graph) == cudaSuccess);
        check_cuda(cudaGraphInstantiate(&launched, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
        for (int round = 0; round < 3; ++round) {
            check_cuda(cudaGraphLaunch(launched, s), "cudaGraphLaunch");
            CHECK(pool.state().live_blocks == 0);
            CHECK(pool.state().lost_bytes == 40 * MiB);
            CHECK(pool.in_use_bytes() == 40 * MiB); // CUDA has not taken them back
            CHECK_SAYS(pool.report(), "40 MiB not handed out again");
            pool.settle();
            pool.trim();
            void* const next = pool.allocate(other, 20 * MiB); // not the graph's
            check_cuda(cudaMemsetAsync(next, 3, 20 * MiB, other), "cudaMemsetAsync");
            pool.deallocate(other, next, 20 * MiB);
            check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        check_cuda(cudaGraphExecDestroy(launched), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}

TEST_CASE("driver_pool: a marked stream that is captured at the free has its graph keep the block") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        driver_pool pool;
        void* const p = pool.allocate(s, 20 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.used_on(p, other);
        {
            support::capture graph(other);
            pool.deallocate(s, p, 20 * MiB);
            CHECK(cudaPeekAtLastError() == cudaSuccess);
            CHECK(graph.unbroken());
        }
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.state().lost_bytes == 20 * MiB);
        pool.settle();
        CHECK(pool.in_use_bytes() == 20 * MiB); // CUDA has not taken it back
    });
}

TEST_CASE("driver_pool: what was not given back is given back at the end, after the work that uses it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        {
            driver_pool pool;
            void* const p = pool.allocate(s, 20 * MiB);
            support::capture graph(s);
            pool.deallocate(s, p, 20 * MiB);
            CHECK(graph.unbroken());
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }); // the world reports what leaked
}

TEST_CASE("driver_pool: what CUDA does not know is left alone, and counts for nothing") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        alignas(256) static char hosts[256];
        auto* const mine = static_cast<char*>(pool.allocate(s, 1000));
        void* const twice = pool.allocate(s, 1 * MiB);
        pool.deallocate(s, twice, 1 * MiB);
        for (void* const wrong : {twice, static_cast<void*>(hosts), static_cast<void*>(mine + 256)})
            for (weir::stream_ref const on : {weir::stream_ref(s), weir::stream_ref(on_host)}) {
                pool.deallocate(on, wrong, 256);
                CHECK(cudaPeekAtLastError() == cudaSuccess);
                CHECK(pool.state().live_blocks == 1);
                CHECK(pool.state().lost_bytes == 0);
            }
        pool.deallocate(s, mine, 1000);
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE("driver_pool: 'used_on' a captured stream is refused with a sentence") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        driver_pool pool;
        void* const p = pool.allocate(a, 1000);
        support::capture graph(b);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { pool.used_on(p, b); }),
                   "weir: pool 'driver': 'used_on' cannot mark a stream that is being captured into a graph");
        CHECK(graph.unbroken());
        pool.deallocate(a, p, 1000);
    });
}

TEST_CASE("driver_pool: its calls do not break the capture of another stream") {
    support::every_schedule([] {
        support::scoped_stream const captured, s;
        driver_pool before;
        support::capture graph(captured);
        auto const use = [&] {
            driver_pool pool;
            void* const p = pool.allocate(s, 1 * MiB);
            pool.used_on(p, s);
            pool.deallocate(s, p, 1 * MiB);
            void* const r = before.allocate_sync(1000);
            before.deallocate_sync(r, 1000);
            static_cast<void>(before.report());
            before.trim();
            before.reset_peaks();
        };
        use();
        std::thread(use).join();
        CHECK(graph.unbroken());
    });
}

// ---- faults -------------------------------------------------------------------------------------------------------------

namespace {

struct faulty {
    support::scoped_stream a, b;
    std::unique_ptr<driver_pool> pool = std::make_unique<driver_pool>();
    void* held = pool->allocate(a, 1 * MiB);
    void* got = nullptr;
    ~faulty() { pool->deallocate(a, held, 1 * MiB); }
    void free_held() { pool->deallocate(a, std::exchange(held, nullptr), 1 * MiB); }
};

// Whatever failed: what is out is what it was, the pool works, and nothing is lost, unless CUDA failed `for_ever`.
void is_sound(faulty& x, std::size_t blocks, bool for_ever = false) {
    CHECK(x.pool->state().live_blocks == blocks);
    void* const p = x.pool->allocate(x.b, 5000);
    x.pool->deallocate(x.b, p, 5000);
    x.pool->settle();
    std::size_t const lost_bytes = x.pool->state().lost_bytes;
    CHECK((lost_bytes == 0 || for_ever));
    CHECK((x.pool->in_use_bytes() != 0) == (blocks != 0 || lost_bytes != 0));
}

template <class Pool>
std::uint64_t sweep_of_its_beginning() {
    return support::fault_sweep(
        [] { return std::make_unique<std::unique_ptr<Pool>>(); },
        [](std::unique_ptr<Pool>& x) { x = std::make_unique<Pool>(); },
        [](std::unique_ptr<Pool>& x, support::struck const& fault) { CHECK((x == nullptr) == fault.threw); });
}

} // namespace

TEST_CASE("driver_pool: every call may fail: the pool is as it was, nothing leaks, the error names the call") {
    auto const prepare = [] { return std::make_unique<faulty>(); };
    std::uint64_t runs = sweep_of_its_beginning<driver_pool>() + sweep_of_its_beginning<weir::pinned_driver_pool>();
    for (bool const host : {false, true})
        runs += support::fault_sweep(
            prepare,
            [&](faulty& x) { x.got = x.pool->try_allocate(host ? weir::stream_ref(on_host) : weir::stream_ref(x.b), 2 * MiB); },
            [&](faulty& x, support::struck const& fault) {
                // The last call only puts the thread's capture mode back: there is nobody to tell.
                CHECK((x.got != nullptr) == !fault.threw);
                x.pool->deallocate(x.b, x.got, 2 * MiB);
                is_sound(x, 1, fault.for_ever);
            });
    for (bool const used : {false, true})
        runs += support::fault_sweep(
            [&] {
                auto fresh = std::make_unique<faulty>();
                if (used)
                    fresh->pool->used_on(fresh->held, fresh->b);
                return fresh;
            },
            [](faulty& x) { x.free_held(); },
            [](faulty& x, support::struck const& fault) {
                CHECK_FALSE(fault.threw);
                is_sound(x, 0, fault.for_ever);
            });
    using member = void (*)(faulty&);
    for (member const each : {member([](faulty& x) { x.pool->used_on(x.held, x.b); }), member([](faulty& x) { x.pool->trim(); }),
                              member([](faulty& x) { x.pool->settle(); }), member([](faulty& x) { x.pool->reserve(64 * MiB); }),
                              member([](faulty& x) { static_cast<void>(x.pool->report()); }),
                              member([](faulty& x) { x.pool->reset_peaks(); })})
        runs += support::fault_sweep(prepare, each, [](faulty& x, support::struck const& fault) { is_sound(x, 1, fault.for_ever); });
    // In a captured stream.
    struct capturing : faulty {
        capturing() { check_cuda(cudaStreamBeginCapture(b, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture"); }
        void* mine = nullptr;
        void ends() {
            cudaGraph_t graph = nullptr;
            CHECK(cudaStreamEndCapture(b, &graph) == cudaSuccess);
            CHECK(cudaGraphDestroy(graph) == cudaSuccess);
            is_sound(*this, 1);
        }
    };
    runs += support::fault_sweep([] { return std::make_unique<capturing>(); },
                                 [](capturing& x) { x.mine = x.pool->try_allocate(x.b, 2 * MiB); },
                                 [](capturing& x, support::struck const& fault) {
                                     CHECK((x.mine != nullptr) == !fault.threw);
                                     x.ends();
                                 });
    runs += support::fault_sweep(
        [] {
            auto fresh = std::make_unique<capturing>();
            fresh->mine = fresh->pool->allocate(fresh->b, 2 * MiB);
            return fresh;
        },
        [](capturing& x) { x.pool->deallocate(x.b, x.mine, 2 * MiB); },
        [](capturing& x, support::struck const& fault) {
            CHECK_FALSE(fault.threw);
            CHECK(x.pool->state().lost_bytes == 0);
            x.ends();
        });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 80);
#endif
    static_cast<void>(runs);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: where nothing is known of any block, a pair is CUDA's two calls, a question and two guards") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    for (bool const marked : {false, true}) { // for the host, whose uses are over: that asks nothing
        std::uint64_t const before = simulated_cuda::calls();
        void* const p = pool.allocate(s, 1 * KiB);
        if (marked)
            pool.used_on(p, on_host);
        pool.deallocate(s, p, 1 * KiB);
        CHECK(simulated_cuda::calls() - before == 2 + 1 + 2 * 2);
    }
}

TEST_CASE("driver_pool: a block that another stream uses takes no short way") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, other;
    driver_pool pool;
    void* const p = pool.allocate(s, 1 * MiB);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, other), "cudaMemsetAsync");
    pool.used_on(p, other);
    pool.deallocate(s, p, 1 * MiB); // after the work on 'other', or the device tells
    void* const next = pool.allocate(s, 1 * MiB);
    check_cuda(cudaMemsetAsync(next, 2, 1 * MiB, s), "cudaMemsetAsync");
    pool.deallocate(s, next, 1 * MiB);
}

TEST_CASE("driver_pool: a refused free is made again, then behind all work, and then the block is lost until the pool ends") {
    struct refusal {
        std::uint64_t times;
        bool waits, lost;
        cudaError_t error;
    };
    for (refusal const& each : {refusal{1, false, false, cudaErrorUnknown}, refusal{1, false, false, cudaErrorInvalidValue},
                                refusal{2, true, false, cudaErrorUnknown}, refusal{3, true, false, cudaErrorUnknown},
                                refusal{4, true, true, cudaErrorUnknown}}) {
        CAPTURE(each.times);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all); // which tells of a leak
        support::scoped_stream const s, captured;
        driver_pool pool;
        void* const p = pool.allocate(s, 1 * MiB);
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
        support::capture graph(captured);
        refuse_frees(each.times, each.error);
        pool.deallocate(s, p, 1 * MiB);
        CHECK(graph.unbroken());
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(simulated_cuda::failed_calls() == each.times);
        CHECK((simulated_cuda::pending() <= 1) == each.waits); // the free alone
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.state().lost_bytes == (each.lost ? 1 * MiB : 0));
        void* const next = pool.allocate(s, 1 * MiB);
        CHECK((next != p || !each.lost));
        pool.deallocate(s, next, 1 * MiB);
        pool.settle();
        CHECK(pool.in_use_bytes() == (each.lost ? 1 * MiB : 0));
        if (each.lost)
            CHECK_SAYS(pool.report(), "1 MiB not handed out again");
    }
}

TEST_CASE_TEMPLATE("driver_pool: a refused free waits for the work of another device", Pool, driver_pool,
                   weir::pinned_driver_pool) {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    Pool pool;
    void* const p = pool.allocate_sync(1 * MiB);
    weir::runtime::device_scope const other(1);
    void* far = nullptr;
    check_cuda(cudaMalloc(&far, 1 * MiB), "cudaMalloc");
    support::scoped_stream const there;
    check_cuda(cudaMemcpyPeerAsync(far, 1, p, 0, 1 * MiB, there), "cudaMemcpyPeerAsync"); // which needs no access
    refuse_frees(2);
    pool.deallocate(there, p, 1 * MiB);
    CHECK(simulated_cuda::pending() <= 1); // the free alone
    CHECK(pool.state().lost_bytes == 0);
    check_cuda(cudaFree(far), "cudaFree");
}

TEST_CASE("driver_pool: what a host function frees is lost until the pool ends: the device waits for that function") {
    simulated_cuda::world const world(simulated_cuda::config{}.late());
    for (cudaStream_t const on : {cudaStreamLegacy, cudaStreamPerThread}) {
        driver_pool pool;
        struct free_later {
            driver_pool& pool;
            cudaStream_t on;
            void* p;
        } work{pool, on, pool.allocate(on, 1 * MiB)};
        auto const call = [](void* of) {
            auto const& each = *static_cast<free_later*>(of);
            each.pool.deallocate(each.on, each.p, 1 * MiB);
        };
        check_cuda(cudaLaunchHostFunc(on, call, &work), "cudaLaunchHostFunc");
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.state().lost_bytes == 1 * MiB);
    }
    for (simulated_cuda::report const& each : simulated_cuda::reports()) // of the calls in the host function, and no leak
        CHECK(each.kind == simulated_cuda::finding::host_access);
    simulated_cuda::clear_reports();
}

TEST_CASE("driver_pool: its end with lost blocks leaves captures whole, and so does 'settle' those of other devices") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const s, other;
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const there;
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    auto pool = std::make_unique<driver_pool>();
    void* const p = pool->allocate(s, 1 * MiB);
    {
        support::capture graph(s);
        pool->deallocate(s, p, 1 * MiB);
    }
    {
        support::capture graph(there);
        pool->settle();
        CHECK(graph.unbroken());
    }
    CHECK(pool->in_use_bytes() == 1 * MiB);
    support::capture graph(other);
    pool.reset();
    CHECK(graph.unbroken());
}

TEST_CASE("driver_pool: what is known of an address is what it is now, whatever others learn while it is handed out") {
    // Between the look at what is known and CUDA's answer another thread captures the address into a graph that goes at once.
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, other;
    driver_pool pool;
    void* p = nullptr;
    static std::function<void()> meanwhile;
    meanwhile = [&] {
        support::capture graph(other, cudaStreamCaptureModeRelaxed);
        p = pool.allocate(other, 1 * MiB);
        CHECK(graph.unbroken());
        check_cuda(cudaDeviceGraphMemTrim(0), "cudaDeviceGraphMemTrim");
    };
    simulated_cuda::at_switch_points([] {
        if (auto const once = std::exchange(meanwhile, nullptr))
            once();
    });
    void* const again = pool.allocate(s, 1 * MiB);
    simulated_cuda::at_switch_points(nullptr);
    CHECK_FALSE(meanwhile);
    REQUIRE(again == p);
    CHECK(pool.state().live_blocks == 1);
    pool.deallocate(s, again, 1 * MiB);
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
}

// ---- default streams, and several devices -------------------------------------------------------------------------------

namespace {

// Two devices, of which the first is the pool's and current when the body begins.
template <class Body>
void on_default_streams(Body&& body) {
    for (cudaStream_t const on : {cudaStreamLegacy, cudaStreamPerThread, cudaStream_t{}})
        for (simulated_cuda::config const& each : {simulated_cuda::config{}.late(), simulated_cuda::config{}.random(1)}) {
            CAPTURE(on);
            simulated_cuda::world const world(simulated_cuda::config(each).with_devices(2), support::report_all);
            support::scoped_stream const taker;
            driver_pool_options options;
            options.limit(32 * MiB); // one block
            driver_pool pool(options);
            cudaMemAccessDesc both{};
            both.location = {cudaMemLocationTypeDevice, 1};
            both.flags = cudaMemAccessFlagsProtReadWrite;
            check_cuda(cudaMemPoolSetAccess(pool.get(), &both, 1), "cudaMemPoolSetAccess");
            body(pool, on, taker);
            CHECK(weir::runtime::current_device() == 0);
            check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
}

// The pool's only bytes go to another stream, which must be made to wait for whatever used them.
void take_next(driver_pool& pool, cudaStream_t taker) {
    void* const next = pool.allocate(taker, 32 * MiB);
    check_cuda(cudaMemsetAsync(next, 2, 32 * MiB, taker), "cudaMemsetAsync");
    pool.deallocate(taker, next, 32 * MiB);
}

} // namespace

TEST_CASE("driver_pool: a default stream is its own device's: a free while another device is current") {
    on_default_streams([](driver_pool& pool, cudaStream_t on, cudaStream_t taker) {
        void* const p = pool.allocate(on, 32 * MiB);
        check_cuda(cudaMemsetAsync(p, 1, 32 * MiB, on), "cudaMemsetAsync");
        weir::runtime::event written(0);
        written.record(on);
        check_cuda(cudaSetDevice(1), "cudaSetDevice");
        written.make_wait(on); // the current device's stream of that name, which uses the block too
        CHECK(simulated_cuda::launch(on, {{p, 32 * MiB}}, {}) == cudaSuccess);
        pool.deallocate(on, p, 32 * MiB);
        CHECK(weir::runtime::current_device() == 1);
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        take_next(pool, taker);
    });
}

TEST_CASE("driver_pool: a default stream is its own device's: what a capture freed there while another was current is lost") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    void* const p = pool.allocate_sync(1 * MiB);
    support::capture graph(cudaStreamPerThread);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    CHECK(graph.unbroken());
    CHECK(pool.state().lost_bytes == 1 * MiB);
}

TEST_CASE("driver_pool: a graph's block is freed on a default stream while another device is current") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    support::scoped_stream const s;
    void* p = nullptr;
    {
        launchable graph(s, [&] { p = pool.allocate(s, 1 * MiB); });
        graph.launch(s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        check_cuda(cudaSetDevice(1), "cudaSetDevice");
        pool.deallocate(cudaStreamPerThread, p, 1 * MiB);
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
        graph.launch(s); // CUDA refuses this as long as the block is out
        pool.deallocate(s, p, 1 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
    CHECK(pool.state().lost_bytes == 0);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("driver_pool: a block whose device cannot be made current for the free goes back behind all work") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    void* const p = pool.allocate(cudaStreamLegacy, 1 * MiB);
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, cudaStreamLegacy), "cudaMemsetAsync");
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    for (std::uint64_t k = 1; k <= 2; ++k)
        simulated_cuda::fail_call("cudaSetDevice", k, cudaErrorUnknown);
    pool.deallocate(cudaStreamLegacy, p, 1 * MiB);
    CHECK(simulated_cuda::failed_calls() == 2);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(pool.state().lost_bytes == 0);
    CHECK(weir::runtime::current_device() == 1);
    pool.settle();
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("driver_pool: a stream that was created knows its device: none is asked for") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    std::uint64_t const before = simulated_cuda::calls("cudaGetDevice");
    pool.deallocate(s, pool.allocate(s, 1000), 1000);
    pool.deallocate_sync(pool.allocate_sync(1000), 1000);
    CHECK(simulated_cuda::calls("cudaGetDevice") == before);
}

TEST_CASE("driver_pool: the free of another pool's block does not take its count below zero") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool_options options;
    options.on_leak(weir::leak_action::ignore);
    driver_pool owner(options), stranger;
    void* const p = owner.allocate(s, 1000);
    stranger.deallocate(s, p, 1000);
    CHECK(stranger.state().live_blocks == 0);
    void* const q = stranger.allocate(s, 1000);
    CHECK(stranger.state().live_blocks == 1);
    stranger.deallocate(s, q, 1000);
    CHECK(stranger.state().live_blocks == 0);
}

#endif
