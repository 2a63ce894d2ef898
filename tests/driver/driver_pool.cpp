// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every pool must do is in tests/contract/pool.cpp; here is what CUDA's own pool adds: attributes, peaks, blocks of
// more than its alignment, kinds of memory, other processes, graphs, and frees that CUDA refuses.

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/noted.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <sys/wait.h>
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

} // namespace

TEST_CASE("driver_pool: sets what its options say") {
    support::every_schedule([] {
        driver_pool const usual;
        CHECK(usual.name() == "driver");
        CHECK(usual.device() == 0);
        CHECK(usual.limit_bytes() == SIZE_MAX);
        CHECK(attribute<std::uint64_t>(usual, cudaMemPoolAttrReleaseThreshold) == UINT64_MAX);
        CHECK(attribute<int>(usual, cudaMemPoolReuseFollowEventDependencies) == 1);
        CHECK(attribute<int>(usual, cudaMemPoolReuseAllowOpportunistic) == 1);
        CHECK(attribute<int>(usual, cudaMemPoolReuseAllowInternalDependencies) == 1);
        for (int off = 0; off < 3; ++off) {
            driver_pool_options options;
            options.name("mine");
            options.release_threshold(7 * MiB);
            options.follow_event_dependencies(off != 0);
            options.allow_opportunistic(off != 1);
            options.allow_internal_dependencies(off != 2);
            driver_pool const pool(options);
            CHECK(pool.name() == "mine");
            CHECK(attribute<std::uint64_t>(pool, cudaMemPoolAttrReleaseThreshold) == 7 * MiB);
            CHECK(attribute<int>(pool, cudaMemPoolReuseFollowEventDependencies) == (off != 0));
            CHECK(attribute<int>(pool, cudaMemPoolReuseAllowOpportunistic) == (off != 1));
            CHECK(attribute<int>(pool, cudaMemPoolReuseAllowInternalDependencies) == (off != 2));
        }
    });
}

TEST_CASE("driver_pool: hands out memory in its stream's order, and takes it back") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        for (int round = 0; round < 5; ++round) {
            void* const p = support::take(pool, s, 100000);
            unsigned char last = 0;
            check_cuda(cudaMemsetAsync(p, round, 100000, s), "cudaMemsetAsync");
            check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(p) + 99999, 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(last == round);
            support::give(pool, s, p, 100000);
        }
        CHECK(pool.state().live_blocks == 0);
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

TEST_CASE("driver_pool: keeps memory over a synchronisation, and trim gives it back") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* const p = pool.allocate(s, 64 * MiB);
        pool.deallocate(s, p, 64 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        std::size_t const held = pool.reserved_bytes();
        CHECK(held >= 64 * MiB);
        CHECK(pool.trim(held) == 0);
        pool.settle();
        CHECK(pool.trim() == held);
        CHECK(pool.reserved_bytes() == 0);
        CHECK(pool.trim() == 0);
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

TEST_CASE("driver_pool: behind 'settle' trim finds what was just freed, though nobody else waited") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* const p = pool.allocate(s, 64 * MiB);
        check_cuda(cudaMemsetAsync(p, 0, 64 * MiB, s), "cudaMemsetAsync");
        pool.deallocate(s, p, 64 * MiB);
        pool.settle();
        CHECK(pool.trim() >= 64 * MiB);
        CHECK(pool.reserved_bytes() == 0);
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

TEST_CASE("driver_pool: aligns to 256 bytes by itself and to any power of two when asked") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        std::vector<std::pair<void*, std::size_t>> live;
        for (std::size_t alignment = 1; alignment <= 4 * MiB; alignment *= 2)
            for (std::size_t bytes : {std::size_t{1}, std::size_t{1000}}) {
                void* const p = support::take(pool, s, bytes, alignment);
                REQUIRE(p != nullptr);
                REQUIRE(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
                check_cuda(cudaMemsetAsync(p, 1, bytes, s), "cudaMemsetAsync");
                live.emplace_back(p, bytes);
            }
        std::size_t i = 0;
        for (std::size_t alignment = 1; alignment <= 4 * MiB; alignment *= 2)
            for (int both = 0; both < 2; ++both, ++i)
                support::give(pool, s, live[i].first, live[i].second, alignment);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.in_use_bytes() == 0);
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE("driver_pool: on the host, memory is there at once and gone at once") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* const p = pool.allocate_sync(1 * MiB);
        check_cuda(cudaMemsetAsync(p, 2, 1 * MiB, s), "cudaMemsetAsync"); // nothing to wait for
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        pool.deallocate_sync(p, 1 * MiB);
        void* const q = pool.allocate_sync(1 * MiB, 4096);
        pool.deallocate_sync(q, 1 * MiB, 4096);
        pool.settle();
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("driver_pool: a free waits for the streams that the block was used on") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        driver_pool pool;
        for (int round = 0; round < 5; ++round) {
            void* const p = support::take(pool, a, 1 * MiB);
            check_cuda(cudaStreamSynchronize(a), "cudaStreamSynchronize");
            check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, b), "cudaMemsetAsync");
            pool.used_on(p, b);
            pool.used_on(p, on_host);
            pool.used_on(nullptr, b);
            pool.deallocate(a, p, 1 * MiB);
        }
    });
}

TEST_CASE("driver_pool: bad input gives sentences, and nothing is lost" * doctest::test_suite("fills the card")) {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        for (std::size_t wrong : {std::size_t{0}, std::size_t{3}, SIZE_MAX})
            CHECK(sentence_of<weir::usage_error>([&] { static_cast<void>(pool.allocate(s, 10, wrong)); }) ==
                  "weir: an alignment must be a power of two; got " + std::to_string(wrong));
        CHECK(pool.allocate(s, 0) == nullptr);
        CHECK(pool.allocate_sync(0) == nullptr);
        pool.deallocate(s, nullptr, 10);
        for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 255, std::size_t{1} << 60})
            for (std::size_t alignment : {std::size_t{256}, 1 * MiB}) {
                CHECK(pool.try_allocate(s, bytes, alignment) == nullptr);
                CHECK(cudaPeekAtLastError() == cudaSuccess);
            }
        std::string const told =
            sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(s, std::size_t{1} << 60)); });
        CHECK_SAYS(told, "weir: out of memory: pool 'driver' cannot hand out 1152921504606846976 bytes (1 EiB): CUDA's memory pool "
                         "found no 1152921504606846976 bytes (1 EiB) in the device's memory; ask for less (in use 0 B, reserved 0 B, "
                         "limit none, free on the device ");
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE("driver_pool: what is refused is named as CUDA was asked for it, and advised on as its options are"
          * doctest::test_suite("fills the card")) {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        auto const told = [&](std::size_t bytes, std::size_t alignment) {
            return sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(s, bytes, alignment)); });
        };
        std::size_t const large = std::size_t{1} << 38;
        CHECK_SAYS(told(1000, large),
                   "cannot hand out 1000 bytes: CUDA's memory pool found no 274877907944 bytes (256 GiB), 274877906944 "
                   "of them for the alignment, in the device's memory; ask for less (in use");
        std::string const never = ": no block of this pool can have that size and alignment; ask for less (";
        CHECK_SAYS(told(SIZE_MAX, 512), never);
        CHECK_SAYS(told(1000, 2 * large), never);
        CHECK_SAYS(told(1000, 4 * large), never);
        driver_pool_options options;
        options.limit(64 * MiB);
        driver_pool const bounded(options);
        CHECK(bounded.refusal(100 * MiB, 1) == "CUDA's memory pool found no 104857600 bytes (100 MiB) within its limit; ask for "
                                               "less or raise the limit");
        CHECK(bounded.refusal(64 * MiB, 1) == "CUDA's memory pool found no 67108864 bytes (64 MiB) in the device's memory; free "
                                              "something"); // the limit leaves room
        CHECK_SAYS(bounded.refusal(std::size_t{1} << 60, 1), "in the device's memory; ask for less");
        weir::pinned_driver_pool const pinned;
        CHECK(pinned.refusal(1, 1) == "CUDA's memory pool found no 1 byte in the machine's memory; free something");
        CHECK(pinned.refusal(100, 512) == "CUDA's memory pool found no 612 bytes, 512 of them for the alignment, in the "
                                          "machine's memory; free something");
    });
}

TEST_CASE("driver_pool: keeps to its limit") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool_options options;
        options.limit(64 * MiB);
        driver_pool pool(options);
        CHECK(pool.limit_bytes() == 64 * MiB);
        CHECK(pool.can_hold(64 * MiB, 256));
        CHECK_FALSE(pool.can_hold(64 * MiB + 1, 256));
        CHECK(pool.can_hold(60 * MiB, 4096));
        CHECK_FALSE(pool.can_hold(64 * MiB, 4096)); // CUDA aligns to 256 bytes; the rest is padding
        CHECK_FALSE(pool.can_hold(SIZE_MAX, 4096));
        driver_pool_options least;
        least.limit(1 * MiB); // of which CUDA makes a page of 2 MiB
        driver_pool small(least);
        CHECK(small.can_hold(2 * MiB, 256));
        CHECK(small.can_hold(1 * MiB, 4096));
        CHECK_FALSE(small.can_hold(2 * MiB + 1, 256));
        CHECK_FALSE(driver_pool().can_hold(1, ~(~std::size_t{0} >> 1))); // more than any block is aligned to
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i)
            blocks.push_back(pool.allocate(s, 16 * MiB));
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
            pool.deallocate(s, each, 16 * MiB);
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
        for (std::size_t const alignment : {std::size_t{256}, 4 * MiB})
            for (weir::stream_ref const on : {weir::stream_ref(s), weir::stream_ref(on_host)})
                CHECK(pool.try_allocate(on, limit == SIZE_MAX ? 1 * GiB + 1 : limit + 1, alignment) == nullptr);
        CHECK(pool.try_allocate(s, limit == SIZE_MAX ? 1 * GiB : limit, 4 * MiB) == nullptr); // the padding has no room
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
    CHECK_SAYS(told([] { driver_pool pool; }), "this device has no memory pools; use device_pool");
    CHECK_SAYS(told([] { weir::pinned_driver_pool pool; }), "use pinned_pool");
#if CUDART_VERSION >= 13000
    CHECK_SAYS(told([] { weir::managed_driver_pool pool; }), "use managed_pool");
#endif
}
#endif

TEST_CASE("driver_pool: memory is opened to devices that there are") {
    driver_pool pool;
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { pool.enable_access_from(1000); }), "weir: there is no device 1000; CUDA sees ");
    CHECK_THROWS_AS(pool.enable_access_from(-7), weir::usage_error);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: memory is not opened to a device that cannot reach it") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2).without_peers(), support::report_all);
    driver_pool pool;
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { pool.enable_access_from(1); }), "weir: device 1 cannot use memory of device 0");
    pool.enable_access_from(0);
    CHECK(simulated_cuda::calls("cudaMemPoolSetAccess") == 1);
}
#endif

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

TEST_CASE("driver_pool: pinned memory is the host's and every device's") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    driver_pool_options on_node;
    on_node.location(weir::memory_location::host_node(0));
    for (driver_pool_options options : {driver_pool_options{}, on_node}) {
        options.name("staging");
        weir::pinned_driver_pool pool(options);
        static_assert(weir::pinned_driver_pool::space == weir::memory_space::pinned);
        CHECK(pool.device() == 0);
        support::scoped_stream const s;
        auto* const p = static_cast<unsigned char*>(pool.allocate(s, 1 * MiB));
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        cudaPointerAttributes attributes{};
        check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
        CHECK(attributes.type == cudaMemoryTypeHost);
        p[0] = 1;
        CHECK_SAYS(pool.report(), "pool 'staging' (pinned, the driver's pool): 1 MiB in use in 1 block, ");
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
        auto* const q = static_cast<unsigned char*>(pool.allocate_sync(1000, 4096));
        CHECK(reinterpret_cast<std::uintptr_t>(q) % 4096 == 0);
        q[999] = 1;
        pool.deallocate_sync(q, 1000, 4096);
        pool.settle();
        CHECK(pool.in_use_bytes() == 0);
        CHECK(pool.trim() > 0);
        CHECK(pool.reserved_bytes() == 0);
    }
}

TEST_CASE("driver_pool: a copy out of pinned memory that is freed behind it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::pinned_driver_pool pool;
        unsigned char last = 0;
        void* const p = pool.allocate(s, 1 * MiB);
        check_cuda(cudaMemsetAsync(p, 9, 1 * MiB, s), "cudaMemsetAsync");
        check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(p) + 1 * MiB - 1, 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        pool.deallocate(s, p, 1 * MiB);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(last == 9);
    });
}

TEST_CASE("driver_pool: pinned memory keeps to its limit") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool_options options;
        options.limit(32 * MiB);
        weir::pinned_driver_pool pool(options);
        void* const p = pool.allocate(s, 32 * MiB);
        CHECK(pool.try_allocate(s, 32 * MiB) == nullptr);
        CHECK_SAYS(pool.report(), ", limit 32 MiB");
        pool.deallocate(s, p, 32 * MiB);
    });
}

TEST_CASE("driver_pool: options that a kind of memory does not have are refused with a sentence, and nothing is made") {
    support::every_schedule([] {
        driver_pool_options options;
        options.location(weir::memory_location::device(0));
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { weir::pinned_driver_pool pool(options); }), "is on the host");
        options.location(weir::memory_location::host());
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { driver_pool pool(options); }), "on the device that 'device' names");
    });
}

#if CUDART_VERSION >= 13000
TEST_CASE("driver_pool: managed memory is everybody's") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    driver_pool_options on_device;
    on_device.location(weir::memory_location::device(0));
    for (driver_pool_options const& options : {driver_pool_options{}, on_device}) {
        weir::managed_driver_pool pool(options);
        static_assert(weir::managed_driver_pool::space == weir::memory_space::managed);
        support::scoped_stream const s;
        auto* const p = static_cast<unsigned char*>(pool.allocate(s, 1 * MiB));
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        cudaPointerAttributes attributes{};
        check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
        CHECK(attributes.type == cudaMemoryTypeManaged);
        p[0] = 1;
        for (int each = 0; each < devices; ++each) {
            weir::runtime::device_scope const there(each);
            support::scoped_stream const on;
#ifdef WEIR_SIMULATED_CUDA
            CHECK(simulated_cuda::launch(on, {}, {{p, 1 * MiB}}) == cudaSuccess);
#endif
            check_cuda(cudaMemsetAsync(p, 2 + each, 1 * MiB, on), "cudaMemsetAsync");
            check_cuda(cudaStreamSynchronize(on), "cudaStreamSynchronize");
            CHECK(p[1 * MiB - 1] == 2 + each);
        }
        CHECK_SAYS(pool.report(), "(managed, the driver's pool)");
        pool.deallocate(s, p, 1 * MiB);
        pool.settle();
        CHECK(pool.in_use_bytes() == 0);
    }
    driver_pool_options bounded;
    bounded.limit(1 * MiB);
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { weir::managed_driver_pool pool(bounded); }), "put layer::limit around");
}

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
TEST_CASE("driver_pool: a pool lets another device in") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    pool.enable_access_from(1);
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::scoped_stream const there;
        CHECK(simulated_cuda::launch(there, {}, {{p, 1 * MiB}}) == cudaSuccess); // else the world reports it
        check_cuda(cudaStreamSynchronize(there), "cudaStreamSynchronize");
    }
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    pool.deallocate_sync(p, 1 * MiB);
}

TEST_CASE("driver_pool: a device that was let in is waited for before a refused block goes back") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    pool.enable_access_from(1);
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        CHECK(simulated_cuda::launch(cudaStreamLegacy, {}, {{p, 1 * MiB}}) == cudaSuccess);
        check_cuda(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        pool.deallocate(cudaStreamLegacy, p, 1 * MiB); // nothing can be asked of that stream now
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamEndCapture(blocking, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    }
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    pool.settle();
    CHECK(simulated_cuda::pending() == 0);
    CHECK(pool.in_use_bytes() == 0);
}

TEST_CASE("driver_pool: a graph that a device which was let in runs keeps its block until the end, which waits for it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    auto pool = std::make_unique<driver_pool>();
    pool->enable_access_from(1);
    void* const p = pool->allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::scoped_stream const there;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        check_cuda(cudaStreamBeginCapture(there, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, there), "cudaMemsetAsync");
        pool->deallocate(there, p, 1 * MiB);
        check_cuda(cudaStreamEndCapture(there, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphLaunch(ready, there), "cudaGraphLaunch");
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        REQUIRE(simulated_cuda::pending() != 0);
        pool.reset();
        CHECK(simulated_cuda::pending() == 0);
        check_cuda(cudaGraphExecDestroy(ready), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
}

TEST_CASE("driver_pool: a refused block goes back behind a copy by peers on another device's stream") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    void* far = nullptr;
    check_cuda(cudaMalloc(&far, 1 * MiB), "cudaMalloc");
    {
        support::scoped_stream const there;
        check_cuda(cudaMemcpyPeerAsync(far, 1, p, 0, 1 * MiB, there), "cudaMemcpyPeerAsync"); // which needs no access
        simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
        pool.deallocate(there, p, 1 * MiB);
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        pool.settle();
        CHECK(simulated_cuda::pending() == 0);
        CHECK(pool.in_use_bytes() == 0);
    }
    check_cuda(cudaFree(far), "cudaFree");
}

TEST_CASE("driver_pool: what it does with refused blocks leaves captures whole: at its end, and on other devices in 'settle'") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const s, other;
    for (bool const captured : {false, true}) {
        CAPTURE(captured);
        auto pool = std::make_unique<driver_pool>();
        void* const p = pool->allocate(s, 1 * MiB);
        if (captured) {
            support::capture graph(s);
            pool->deallocate(s, p, 1 * MiB);
        } else {
            simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
            pool->deallocate(s, p, 1 * MiB);
        }
        CHECK(pool->in_use_bytes() == 1 * MiB);
        support::capture graph(other);
        pool.reset();
        CHECK(graph.unbroken());
    }
    driver_pool pool;
    void* const p = pool.allocate(s, 1 * MiB);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
    pool.deallocate(s, p, 1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const there;
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    support::capture graph(there);
    pool.settle();
    CHECK(graph.unbroken());
    CHECK(pool.in_use_bytes() == 0);
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

TEST_CASE("driver_pool: what is freed of pinned memory while a device uses it waits for that device in 'settle'") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    weir::pinned_driver_pool pool;
    void* const p = pool.allocate_sync(1 * MiB);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::scoped_stream const there;
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, there), "cudaMemsetAsync");
        simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
        pool.deallocate(there, p, 1 * MiB);
        CHECK(pool.in_use_bytes() == 1 * MiB);
        pool.settle();
        CHECK(pool.in_use_bytes() == 0);
    }
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}
#endif

// ---- other processes --------------------------------------------------------------------------------------------------

TEST_CASE("driver_pool: exports itself and its blocks where it was made for that, and else says what to set") {
    support::every_schedule([] {
        driver_pool_options options;
        options.handle_types(cudaMemHandleTypePosixFileDescriptor);
        driver_pool pool(options);
        int const descriptor = pool.export_descriptor();
        CHECK(descriptor >= 0);
        CHECK(close(descriptor) == 0);
        CHECK(sentence_of<weir::usage_error>([&] { static_cast<void>(pool.export_fabric()); }) ==
              "weir: this pool was not made for other processes; set driver_pool_options::handle_types to "
              "cudaMemHandleTypeFabric");
        void* const p = pool.allocate_sync(1000);
        void* const q = pool.allocate_sync(1000, 1 * MiB);
        CHECK(pool.export_block(p).offset_bytes == 0);
        weir::runtime::exported_block const further = pool.export_block(q);
        CHECK(further.offset_bytes < 1 * MiB);
        pool.deallocate_sync(q, 1000, 1 * MiB);
        pool.deallocate_sync(p, 1000);
        driver_pool closed;
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(closed.export_descriptor()); }),
                   "handle_types to cudaMemHandleTypePosixFileDescriptor");
        void* const kept = closed.allocate_sync(1000);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(closed.export_block(kept)); }),
                   "handle_types to cudaMemHandleTypePosixFileDescriptor");
        driver_pool early(options);
        void* const unknown = early.allocate_sync(1000);
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(early.export_block(unknown)); }),
                   "weir: cudaMemPoolExportPointer failed with cudaErrorInvalidValue (1): export the pool itself first");
        early.deallocate_sync(unknown, 1000);
        closed.deallocate_sync(kept, 1000);
    });
}

// ---- capture ------------------------------------------------------------------------------------------------------------

TEST_CASE("driver_pool: in a captured stream an allocation becomes part of the graph") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        {
            support::capture graph(s);
            void* const p = pool.allocate(s, 1 * MiB);
            CHECK(p != nullptr);
            check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
            void* const q = pool.allocate(s, 1000, 4096);
            CHECK(reinterpret_cast<std::uintptr_t>(q) % 4096 == 0);
            pool.deallocate(s, q, 1000, 4096);
            pool.deallocate(s, p, 1 * MiB);
            std::size_t nodes = 0;
            CHECK(graph.unbroken(&nodes));
            CHECK(nodes == 5); // two allocations, two frees and what sets the bytes
        }
        CHECK(pool.state().live_blocks == 0);
    });
}

namespace {

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

TEST_CASE("driver_pool: what a graph allocates and frees is there in each of its launches, and none of the pool's") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        unsigned char last = 0;
        launchable graph(s, [&] {
            void* const p = pool.allocate(s, 64 * MiB);
            void* const q = pool.allocate(s, 1000, 4096);
            CHECK(reinterpret_cast<std::uintptr_t>(q) % 4096 == 0);
            CHECK(pool.state().live_blocks == 0);
            check_cuda(cudaMemsetAsync(p, 5, 64 * MiB, s), "cudaMemsetAsync");
            check_cuda(cudaMemsetAsync(q, 5, 1000, s), "cudaMemsetAsync");
            pool.deallocate(s, q, 1000, 4096);
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
        void* const other = pool.allocate(s, 32 * MiB);
        CHECK(pool.state().live_blocks == 1);
        pool.deallocate(s, other, 32 * MiB);
        CHECK(pool.state().live_blocks == 0);
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
TEST_CASE("driver_pool: before it refuses, what CUDA keeps for graphs goes back, and a block that CUDA refused") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_memory(128 * MiB), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    {
        launchable graph(s, [&] { pool.deallocate(s, pool.allocate(s, 96 * MiB), 96 * MiB); });
        graph.launch(s);
    }
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    void* p = pool.try_allocate(s, 96 * MiB);
    CHECK(p != nullptr);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
    pool.deallocate(s, p, 96 * MiB);
    CHECK(pool.state().unsettled_bytes == 96 * MiB);
    p = pool.try_allocate(s, 112 * MiB);
    CHECK(p != nullptr);
    pool.deallocate(s, p, 112 * MiB);
}
#endif

TEST_CASE("driver_pool: what a graph allocates and does not free is the program's to free, once after each launch") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* p = nullptr;
        void* q = nullptr;
        {
            launchable graph(s, [&] {
                p = pool.allocate(s, 1 * MiB);
                q = pool.allocate(s, 1000, 64 * KiB);
                check_cuda(cudaMemsetAsync(p, 6, 1 * MiB, s), "cudaMemsetAsync");
            });
            for (int round = 0; round < 3; ++round) {
                graph.launch(s);
                unsigned char last = 0;
                check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(p) + 1 * MiB - 1, 1, cudaMemcpyDefault, s), "cudaMemcpyAsync");
                pool.deallocate(s, p, 1 * MiB);
                pool.deallocate(s, q, 1000, 64 * KiB); // where it begins for CUDA is known each time
                check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
                CHECK(last == 6);
                CHECK(pool.state().live_blocks == 0);
            }
        }
        pool.settle(); // nothing was refused, so nothing is offered
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.in_use_bytes() == 0);
    });
}

TEST_CASE("driver_pool: the launch of another graph may free what a graph allocates") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* p = nullptr;
        launchable makes(s, [&] {
            p = pool.allocate(s, 1 * MiB);
            check_cuda(cudaMemsetAsync(p, 6, 1 * MiB, s), "cudaMemsetAsync");
        });
        launchable ends(s, [&] {
            check_cuda(cudaMemsetAsync(p, 7, 1 * MiB, s), "cudaMemsetAsync");
            pool.deallocate(s, p, 1 * MiB);
        });
        for (int round = 0; round < 3; ++round) {
            makes.launch(s);
            ends.launch(s);
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.state().live_blocks == 0);
        CHECK(pool.state().lost_bytes == 0);
    });
}

TEST_CASE("driver_pool: several graphs may free what a graph allocates, and the program too, at any alignment") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* const own = pool.allocate(s, 1 * MiB); // in whose place nothing of the graphs' is counted
        void* p = nullptr;
        void* q = nullptr;
        launchable makes(s, [&] {
            void* const first = pool.allocate(s, 256); // so that 'q' does not begin where CUDA says by chance
            p = pool.allocate(s, 1 * MiB);
            q = pool.allocate(s, 1000, 64 * KiB);
            pool.deallocate(s, first, 256);
        });
        auto const end = [&] {
            check_cuda(cudaMemsetAsync(q, 7, 1000, s), "cudaMemsetAsync");
            pool.deallocate(s, q, 1000, 64 * KiB);
            pool.deallocate(s, p, 1 * MiB);
        };
        launchable ends(s, end);
        launchable ends_too(s, end);
        CHECK(pool.state().lost_bytes == 0);
        for (launchable* each : {&ends, &ends_too, &ends}) {
            makes.launch(s);
            each->launch(s);
        }
        makes.launch(s);
        CHECK(support::standard_error_of(end).empty()); // by the program this time
        makes.launch(s);
        ends.launch(s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(pool.state().live_blocks == 1);
        CHECK(pool.state().lost_bytes == 0);
        pool.deallocate(s, own, 1 * MiB);
        CHECK(pool.state().live_blocks == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: a graph frees a graph's block once its use on another stream is over, and is told where it is not") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, other;
    driver_pool pool;
    void* p = nullptr;
    launchable makes(s, [&] { p = pool.allocate(s, 1 * MiB); });
    makes.launch(s);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    simulated_cuda::gate held;
    held.close(other);
    pool.used_on(p, other);
    {
        launchable in_vain(s, [&] {
            std::string const said = support::standard_error_of([&] { pool.deallocate(s, p, 1 * MiB); });
            CHECK(support::contains(said, "stays, since work on another stream uses it and a graph cannot wait for that; capture "
                                          "its free once that work is done"));
        });
    }
    held.open();
    check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    launchable ends(s, [&] { CHECK(support::standard_error_of([&] { pool.deallocate(s, p, 1 * MiB); }).empty()); });
    for (int round = 0; round < 3; ++round) {
        if (round != 0)
            makes.launch(s);
        ends.launch(s);
    }
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    CHECK(pool.state().lost_bytes == 0);
}

TEST_CASE("driver_pool: a graph's block that stays is marked as before") {
    for (bool const captured : {false, true}) { // the stream that frees, or the one that uses the block
        CAPTURE(captured);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s, other;
        driver_pool pool;
        void* p = nullptr;
        launchable makes(s, [&] { p = pool.allocate(s, 1 * MiB); });
        makes.launch(s);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.used_on(p, other);
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, other), "cudaMemsetAsync");
        {
            launchable in_vain(captured ? s : other, [&] {
                CHECK(support::contains(support::standard_error_of([&] { pool.deallocate(s, p, 1 * MiB); }),
                                        "stays, since work on another stream uses it"));
            });
        }
        check_cuda(cudaMemsetAsync(p, 2, 1 * MiB, other), "cudaMemsetAsync"); // behind the free that was not made
        pool.deallocate(s, p, 1 * MiB);                                 // after it, or the device tells
        void* const next = pool.allocate(s, 1 * MiB);
        check_cuda(cudaMemsetAsync(next, 3, 1 * MiB, s), "cudaMemsetAsync");
        pool.deallocate(s, next, 1 * MiB);
        CHECK(pool.state().lost_bytes == 0);
    }
}

TEST_CASE("driver_pool: a use that a captured free was told of is waited for by the free that is made") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, other;
    driver_pool pool;
    void* p = nullptr;
    launchable makes(s, [&] { p = pool.allocate(s, 1 * MiB); });
    makes.launch(s);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, other), "cudaMemsetAsync");
    pool.last_used_on(p, other);
    {
        launchable in_vain(s, [&] { support::standard_error_of([&] { pool.deallocate(s, p, 1 * MiB); }); });
    }
    auto const waits = simulated_cuda::calls("cudaStreamWaitEvent");
    pool.deallocate(s, p, 1 * MiB);
    CHECK(simulated_cuda::calls("cudaStreamWaitEvent") == waits + 1);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}
#endif

TEST_CASE("driver_pool: what a captured stream freed in vain is lost with what its alignment took") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool;
        void* const p = pool.allocate(s, 1 * MiB, 4 * MiB);
        std::size_t const taken = pool.in_use_bytes();
        launchable graph(s, [&] { pool.deallocate(s, p, 1 * MiB, 4 * MiB); });
        CHECK(pool.state().lost_bytes == 5 * MiB);
        CHECK(pool.in_use_bytes() == taken);
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
TEST_CASE("driver_pool: a graph's block that CUDA refuses is not kept: the graph has it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    void* p = nullptr;
    launchable graph(s, [&] {
        p = pool.allocate(s, 1 * MiB);
        simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
        pool.deallocate(s, p, 1 * MiB);
        CHECK(pool.state().lost_bytes == 0);
    });
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorInvalidValue); // as of one that no launch has made yet
    CHECK(support::standard_error_of([&] { pool.deallocate(s, p, 1 * MiB); }).empty());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    std::uint64_t const frees = simulated_cuda::calls("cudaFreeAsync");
    pool.settle();
    CHECK(simulated_cuda::calls("cudaFreeAsync") == frees);
    graph.launch(s);
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

TEST_CASE("driver_pool: the legacy stream does not break the capture of a stream that waits for it") {
    support::every_schedule([] {
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        driver_pool pool;
        void* const p = pool.allocate_sync(20 * MiB);
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

TEST_CASE("driver_pool: what the legacy stream frees while a stream is captured that waits for it is not lost") {
    support::every_schedule([] {
        support::scoped_stream const other;
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        driver_pool pool;
        void* const p = pool.allocate_sync(20 * MiB);
        pool.used_on(p, other);
        {
            support::capture graph(blocking);
            pool.deallocate(cudaStreamLegacy, p, 20 * MiB); // no stream waits for an event now
            CHECK(cudaPeekAtLastError() == cudaSuccess);
            CHECK(graph.unbroken());
        }
        CHECK(pool.state().lost_bytes == 0);
        CHECK(pool.in_use_bytes() == 20 * MiB);
        pool.settle();
        CHECK(pool.in_use_bytes() == 0);
        CHECK(pool.trim() > 0);
        CHECK(pool.reserved_bytes() == 0);
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
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

// ---- wrong frees --------------------------------------------------------------------------------------------------------

namespace {

driver_pool_options quiet(char const* name) {
    driver_pool_options options;
    options.name(name);
    options.on_leak(weir::leak_action::ignore);
    return options;
}

std::string said_of(void const* p, bool is_kept = false) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", p);
    return std::string("weir: pool 'mine': the block at ") + address + " is freed already" +
           (is_kept ? "; free each block once\n"
                    : " or was not handed out by this pool; free each block once, where it was allocated\n");
}

} // namespace

TEST_CASE("driver_pool: a second free is said, and frees nobody's block later") {
    support::every_schedule([] {
        support::scoped_stream const s;
        for (std::size_t alignment : {std::size_t{256}, std::size_t{4096}}) {
            driver_pool pool(quiet("mine"));
            void* const a = pool.allocate(s, 1 * MiB, alignment);
            void* const other = pool.allocate(s, 1 * MiB);
            pool.deallocate(s, a, 1 * MiB, alignment);
            CHECK(support::standard_error_of([&] { pool.deallocate(s, a, 1 * MiB, alignment); }) == said_of(a));
            CHECK(cudaPeekAtLastError() == cudaSuccess);
            CHECK(pool.state().live_blocks == 1);
            CHECK(pool.state().lost_bytes == 0);
            void* const b = pool.allocate(s, 1 * MiB);
            CHECK(support::standard_error_of([&] { pool.settle(); }).empty());
            CHECK(pool.in_use_bytes() == 2 * MiB); // b, wherever it lives
            void* const c = pool.allocate(s, 1 * MiB);
            CHECK(c != b);
            for (void* each : {other, b, c})
                pool.deallocate(s, each, 1 * MiB);
            CHECK(pool.state().live_blocks == 0);
            CHECK(support::standard_error_of([&] { pool.deallocate_sync(c, 1 * MiB); }) == said_of(c));
        }
    });
}

TEST_CASE("driver_pool: what CUDA did not hand out is said, and not counted") {
    support::every_schedule([] {
        support::scoped_stream const s;
        driver_pool pool(quiet("mine"));
        auto* const mine = static_cast<char*>(pool.allocate(s, 1000));
        alignas(256) static char hosts[256];
        for (void* wrong : {static_cast<void*>(hosts), static_cast<void*>(mine + 256)}) {
            CHECK(support::standard_error_of([&] { pool.deallocate(s, wrong, 256); }) == said_of(wrong));
            CHECK(cudaPeekAtLastError() == cudaSuccess);
            CHECK(pool.state().live_blocks == 1);
            CHECK(support::standard_error_of([&] { pool.settle(); }).empty());
        }
        pool.deallocate(s, mine, 1000);
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE("driver_pool: a second free in a captured stream is said when the pool ends, and frees nobody's block") {
    support::every_schedule([] {
        support::scoped_stream const s;
        auto pool = std::make_unique<driver_pool>(quiet("mine"));
        void* const a = pool->allocate(s, 1 * MiB);
        pool->deallocate(s, a, 1 * MiB);
        {
            support::capture graph(s);
            CHECK(support::standard_error_of([&] { pool->deallocate(s, a, 1 * MiB); }).empty());
            CHECK(pool->state().lost_bytes == 1 * MiB);
            CHECK(graph.unbroken());
        }
        CHECK(support::standard_error_of([&] { pool.reset(); }) == said_of(a));
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    });
}

#ifdef WEIR_SIMULATED_CUDA // which hands the same address out again, and in which blocks outlive their pool
TEST_CASE("driver_pool: a block at an address that was freed twice outlives the pool's end") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    auto pool = std::make_unique<driver_pool>(quiet("mine"));
    void* const a = pool->allocate(s, 1 * MiB);
    pool->deallocate(s, a, 1 * MiB);
    {
        support::capture graph(s);
        pool->deallocate(s, a, 1 * MiB);
        CHECK(graph.unbroken());
    }
    REQUIRE(pool->allocate(s, 1 * MiB) == a);
    CHECK(pool->state().lost_bytes == 0);
    CHECK(support::standard_error_of([&] { pool.reset(); }).empty());
    check_cuda(cudaMemsetAsync(a, 1, 1 * MiB, s), "cudaMemsetAsync");
    check_cuda(cudaFreeAsync(a, s), "cudaFreeAsync");
}

TEST_CASE("driver_pool: a second free that fails in passing frees nobody's block in 'settle'") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool(quiet("mine"));
    void* const a = pool.allocate(s, 1 * MiB);
    auto const free_twice = [&] {
        pool.deallocate(s, a, 1 * MiB);
        simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorInvalidResourceHandle);
        pool.deallocate(s, a, 1 * MiB);
    };
    free_twice();
    REQUIRE(pool.allocate(s, 1 * MiB) == a);
    pool.settle();
    CHECK(pool.in_use_bytes() == 1 * MiB);
    free_twice();
    CHECK(support::standard_error_of([&] { pool.settle(); }) == said_of(a)); // nobody's address
    CHECK(support::standard_error_of([&] { pool.settle(); }).empty());
}

TEST_CASE("driver_pool: an address that is handed out while 'settle' waits is not freed by it") {
    for (unsigned seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        simulated_cuda::world const world(simulated_cuda::config{}.random(seed), support::report_all);
        support::scoped_stream const s;
        driver_pool pool(quiet("mine"));
        void* const a = pool.allocate(s, 1 * MiB);
        pool.deallocate(s, a, 1 * MiB);
        simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorInvalidResourceHandle);
        pool.deallocate(s, a, 1 * MiB);
        void* b = nullptr;
        static_cast<void>(support::standard_error_of([&] { // 'settle' may come first, and then says that nobody has it
            simulated_cuda::run_threads({[&] { pool.settle(); }, [&] { b = pool.allocate(s, 1 * MiB); }});
        }));
        REQUIRE(b == a);
        CHECK(pool.in_use_bytes() == 1 * MiB);
        pool.deallocate(s, b, 1 * MiB);
        CHECK(pool.state().live_blocks == 0);
    }
}

TEST_CASE("driver_pool: a block that is kept is freed once") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool(quiet("mine"));
    void* const a = pool.allocate(s, 1 * MiB);
    void* const b = pool.allocate(s, 1 * MiB);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorInvalidResourceHandle); // a destroyed stream's
    pool.deallocate(s, a, 1 * MiB);
    CHECK(pool.state().live_blocks == 1);
    CHECK(support::standard_error_of([&] { pool.deallocate(s, a, 1 * MiB); }) == said_of(a, true));
    CHECK(pool.state().live_blocks == 1);
    CHECK(pool.in_use_bytes() == 2 * MiB);
    pool.settle();
    CHECK(pool.in_use_bytes() == 1 * MiB);
    {
        support::capture graph(s);
        pool.deallocate(s, b, 1 * MiB);
        CHECK(support::standard_error_of([&] { pool.deallocate(s, b, 1 * MiB); }) == said_of(b, true));
        CHECK(pool.state().lost_bytes == 1 * MiB);
    }
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("driver_pool: a free that answers with the error of earlier work is asked once more") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool(quiet("mine"));
    void* const p = pool.allocate(s, 1 * MiB);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorInvalidValue);
    CHECK(support::standard_error_of([&] { pool.deallocate(s, p, 1 * MiB); }).empty());
    CHECK(pool.in_use_bytes() == 0);
    CHECK(pool.state().live_blocks == 0);
}

TEST_CASE("driver_pool: CUDA's other memory is not a pool's to free") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    driver_pool pool(quiet("mine"));
    void* plain = nullptr;
    check_cuda(cudaMalloc(&plain, 1000), "cudaMalloc");
    CHECK(support::standard_error_of([&] { pool.deallocate_sync(plain, 1000); }) == said_of(plain));
    check_cuda(cudaFree(plain), "cudaFree");
}

TEST_CASE("driver_pool: a block that another pool freed is said by its own") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool owner(quiet("mine")), stranger(quiet("stranger"));
    void* const p = owner.allocate(s, 1000);
    CHECK(support::standard_error_of([&] { stranger.deallocate(s, p, 1000); }).empty()); // CUDA takes it
    CHECK(support::standard_error_of([&] { owner.deallocate(s, p, 1000); }) == said_of(p));
    owner.settle();
    CHECK(owner.in_use_bytes() == 0);
}
#endif

TEST_CASE("driver_pool: one that ends with live blocks says so, or not, or aborts, as it was told") {
    using weir::leak_action;
    support::every_schedule([] {
        auto const end_with = [](leak_action action, int blocks) {
            std::vector<void*> out;
            std::string const text = support::standard_error_of([&] {
                driver_pool_options options;
                options.name("leaky");
                options.on_leak(action);
                driver_pool pool(options);
                for (int i = 0; i < blocks; ++i)
                    out.push_back(pool.allocate_sync(256));
            });
#ifdef WEIR_SIMULATED_CUDA // which reports what leaks; CUDA 13.0 may crash where they are freed after their pool
            for (void* each : out)
                check_cuda(cudaFreeAsync(each, cudaStreamLegacy), "cudaFreeAsync");
#endif
            return text;
        };
        CHECK(end_with(leak_action::report, 2) == "weir: pool 'leaky' ends with 2 blocks still handed out; free them, or "
                                                  "end their containers, before the pool\n");
        CHECK(end_with(leak_action::report, 0).empty());
        CHECK(end_with(leak_action::ignore, 2).empty());
    });
#ifdef WEIR_SIMULATED_CUDA // a CUDA context does not survive a fork
    int status = 0;
    std::string const text = support::standard_error_of([&] {
        pid_t const child = fork();
        if (child == 0) {
            std::signal(SIGABRT, SIG_DFL);
            {
                driver_pool_options options;
                options.on_leak(leak_action::abort);
                driver_pool pool(options);
                static_cast<void>(pool.allocate_sync(256));
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    CHECK_SAYS(text, "weir: pool 'driver' ends with 1 block still handed out");
#endif
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
            void* const q = pool.allocate(s, 1 * MiB, 4096);
            pool.used_on(p, s);
            pool.deallocate(s, p, 1 * MiB);
            pool.deallocate(s, q, 1 * MiB, 4096);
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

// ---- threads and faults ---------------------------------------------------------------------------------------------------

TEST_CASE("driver_pool: threads share it, with blocks of any alignment") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(3), support::report_all);
#endif
    driver_pool pool;
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            support::scoped_stream const s;
            std::mt19937_64 draw(t);
            struct block {
                void* p;
                std::size_t bytes, alignment;
            };
            std::vector<block> live;
            for (int step = 0; step < 300; ++step) {
                if (live.size() < 10 && draw() % 2 == 0) {
                    std::size_t const bytes = draw() % (200 * KiB) + 1;
                    std::size_t const alignment = std::size_t{1} << draw() % 14;
                    live.push_back({support::take(pool, s, bytes, alignment), bytes, alignment});
                } else if (!live.empty()) {
                    std::swap(live[draw() % live.size()], live.back());
                    support::give(pool, s, live.back().p, live.back().bytes, live.back().alignment);
                    live.pop_back();
                }
            }
            for (block const& each : live)
                support::give(pool, s, each.p, each.bytes, each.alignment);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(pool.state().live_blocks == 0);
    CHECK(pool.in_use_bytes() == 0);
}

namespace {

struct faulty {
    support::scoped_stream a, b;
    std::unique_ptr<driver_pool> pool = std::make_unique<driver_pool>();
    void* held = pool->allocate(a, 1 * MiB, 4096);
    void* got = nullptr;
    ~faulty() {
        if (pool && held)
            pool->deallocate(a, held, 1 * MiB, 4096);
    }
};

// Whatever failed: what is out is what it was, the pool works, and 'settle' makes good what CUDA refused, unless CUDA did not
// say `for_ever` whether a graph may use it.
void is_sound(faulty& x, std::size_t blocks, bool for_ever = false) {
    CHECK(x.pool->state().live_blocks == blocks);
    void* const p = x.pool->allocate(x.b, 5000);
    x.pool->deallocate(x.b, p, 5000);
    x.pool->settle();
    std::size_t const lost_bytes = x.pool->state().lost_bytes;
    CHECK((lost_bytes == 0 || for_ever));
    CHECK((x.pool->in_use_bytes() != 0) == (blocks != 0 || lost_bytes != 0));
}

} // namespace

TEST_CASE("driver_pool: every call may fail: the pool is as it was, nothing leaks, the error names the call") {
    auto const prepare = [] { return std::make_unique<faulty>(); };
    std::uint64_t runs = 0;
    struct request {
        weir::stream_ref stream;
        std::size_t alignment;
    };
    for (bool host : {false, true})
        for (std::size_t alignment : {std::size_t{256}, std::size_t{4096}})
            runs += support::fault_sweep(
                prepare,
                [&](faulty& x) {
                    x.got = x.pool->try_allocate(host ? weir::stream_ref(on_host) : weir::stream_ref(x.b), 2 * MiB, alignment);
                },
                [&](faulty& x, support::struck const& fault) {
                    // The last call only puts the thread's capture mode back: there is nobody to tell.
                    CHECK((x.got != nullptr) == !fault.threw);
                    if (x.got)
                        x.pool->deallocate(x.b, x.got, 2 * MiB, alignment);
                    is_sound(x, 1);
                });
    runs += support::fault_sweep(prepare,
                                 [](faulty& x) { x.pool->deallocate(x.a, std::exchange(x.held, nullptr), 1 * MiB, 4096); },
                                 [](faulty& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     is_sound(x, 0, fault.for_ever);
                                 });
    runs += support::fault_sweep(
        [] {
            auto fresh = std::make_unique<faulty>();
            fresh->pool->used_on(fresh->held, fresh->b);
            return fresh;
        },
        [](faulty& x) { x.pool->deallocate(x.a, std::exchange(x.held, nullptr), 1 * MiB, 4096); },
        [](faulty& x, support::struck const& fault) {
            CHECK_FALSE(fault.threw);
            is_sound(x, 0, fault.for_ever);
        });
    auto const as_before = [](faulty& x, support::struck const&) { is_sound(x, 1); };
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->used_on(x.held, x.b); }, as_before);
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->trim(); }, as_before);
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->settle(); }, as_before);
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->reserve(64 * MiB); }, as_before);
    runs += support::fault_sweep(prepare, [](faulty& x) { static_cast<void>(x.pool->report()); }, as_before);
    runs += support::fault_sweep(prepare, [](faulty& x) { x.pool->reset_peaks(); }, as_before);
    // A refused block is offered again, whatever fails then.
    runs += support::fault_sweep(
        [] {
            auto fresh = std::make_unique<faulty>();
#ifdef WEIR_SIMULATED_CUDA
            simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
#endif
            fresh->pool->deallocate(fresh->a, std::exchange(fresh->held, nullptr), 1 * MiB, 4096);
            return fresh;
        },
        [](faulty& x) { x.pool->settle(); }, [](faulty& x, support::struck const&) { is_sound(x, 0); });
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
    for (std::size_t alignment : {std::size_t{256}, std::size_t{4096}}) {
        runs += support::fault_sweep([] { return std::make_unique<capturing>(); },
                                     [&](capturing& x) { x.mine = x.pool->try_allocate(x.b, 2 * MiB, alignment); },
                                     [](capturing& x, support::struck const& fault) {
                                         CHECK((x.mine != nullptr) == !fault.threw);
                                         x.ends();
                                     });
        runs += support::fault_sweep(
            [&] {
                auto fresh = std::make_unique<capturing>();
                fresh->mine = fresh->pool->allocate(fresh->b, 2 * MiB, alignment);
                return fresh;
            },
            [&](capturing& x) { x.pool->deallocate(x.b, x.mine, 2 * MiB, alignment); },
            [](capturing& x, support::struck const& fault) {
                CHECK_FALSE(fault.threw);
                CHECK(x.pool->state().lost_bytes == 0);
                x.ends();
            });
    }
    // Their beginnings.
    runs += support::fault_sweep([] { return std::make_unique<std::unique_ptr<weir::pinned_driver_pool>>(); },
                                 [](std::unique_ptr<weir::pinned_driver_pool>& x) {
                                     x = std::make_unique<weir::pinned_driver_pool>();
                                 },
                                 [](std::unique_ptr<weir::pinned_driver_pool>& x, support::struck const& fault) {
                                     CHECK((x == nullptr) == fault.threw);
                                 });
    // Its beginning.
    runs += support::fault_sweep([] { return std::make_unique<std::unique_ptr<driver_pool>>(); },
                                 [](std::unique_ptr<driver_pool>& x) { x = std::make_unique<driver_pool>(); },
                                 [](std::unique_ptr<driver_pool>& x, support::struck const& fault) {
                                     CHECK((x == nullptr) == fault.threw);
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs > 80);
#endif
    static_cast<void>(runs);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_pool: a block that CUDA refuses for a while is not freed while work uses it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    void* const p = support::take(pool, s, 1 * MiB);
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, s), "cudaMemsetAsync");
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
    support::give(pool, s, p, 1 * MiB);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(pool.state().lost_bytes == 0);
    pool.trim(); // does not free it: the work may still run
    CHECK(pool.in_use_bytes() == 1 * MiB);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
    pool.settle();
    CHECK(pool.in_use_bytes() == 1 * MiB); // refused once more
    pool.settle();
    CHECK(pool.in_use_bytes() == 0);
}

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

TEST_CASE("driver_pool: a block whose device cannot be made current for the free is kept for 'settle'") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    driver_pool pool;
    void* const p = pool.allocate(cudaStreamLegacy, 1 * MiB);
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, cudaStreamLegacy), "cudaMemsetAsync");
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    simulated_cuda::fail_call("cudaSetDevice", 1, cudaErrorUnknown);
    pool.deallocate(cudaStreamLegacy, p, 1 * MiB);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(pool.in_use_bytes() == 1 * MiB);
    CHECK(pool.state().lost_bytes == 0);
    pool.settle();
    CHECK(pool.in_use_bytes() == 0);
    CHECK(weir::runtime::current_device() == 1);
}

TEST_CASE("driver_pool: a stream that was created knows its device: none is asked for") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    driver_pool pool;
    pool.deallocate_sync(pool.allocate_sync(1000), 1000); // makes the host's stream
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

TEST_CASE("driver_pool: no GPU and an old driver say so") {
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
        CHECK_SAYS(sentence_of<weir::cuda_error>([] { driver_pool pool; }), "no GPU is visible");
        world.forgive();
    }
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_driver(11000));
        CHECK_SAYS(sentence_of<weir::cuda_error>([] { driver_pool pool; }), "update the driver");
        world.forgive();
    }
}
#endif
