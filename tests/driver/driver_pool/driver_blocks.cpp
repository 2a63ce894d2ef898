// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a pool of these blocks promises is in tests/driver/driver_pool.cpp; here is which calls a pair makes, and that what is
// known of some block is not forgotten on the short way.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/standard_error.hpp>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/driver/driver_pool/driver_blocks.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/cuda_pool.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>

using weir::check_cuda;
using weir::driver::detail::driver_blocks;
using weir::KiB;
using weir::MiB;

static_assert(!std::is_copy_constructible_v<driver_blocks> && !std::is_move_constructible_v<driver_blocks>);

namespace {

cudaMemPoolProps of_device_0() {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    return properties;
}

struct blocks_and_pool {
    weir::driver_pool_options const options = weir::driver_pool_options{}.name("mine").device(0);
    weir::runtime::cuda_pool pool{of_device_0()};
    driver_blocks blocks{pool, weir::memory_space::device, options};

    std::size_t in_use() { return pool.statistics().in_use_bytes; }
};

} // namespace

TEST_CASE("driver_blocks: counts what is out and knows where it begins") {
    support::every_schedule([] {
        support::scoped_stream const s;
        blocks_and_pool mine;
        void* const plain = mine.blocks.allocate(s, 1 * KiB, 256);
        void* const aligned = mine.blocks.allocate(s, 1 * KiB, 64 * KiB);
        CHECK(reinterpret_cast<std::uintptr_t>(aligned) % (64 * KiB) == 0);
        CHECK(mine.blocks.count() == 2);
        CHECK(mine.blocks.begin_of(plain) == plain);
        CHECK(mine.blocks.begin_of(aligned) <= aligned);
        CHECK(mine.blocks.allocate(s, 0, 256) == nullptr);
        CHECK_THROWS_AS(static_cast<void>(mine.blocks.allocate(s, 1, 24)), weir::usage_error);
        CHECK_THROWS_AS(static_cast<void>(mine.blocks.allocate(s, 1, 0)), weir::usage_error);
        mine.blocks.deallocate(s, plain, 1 * KiB);
        mine.blocks.deallocate(s, aligned, 1 * KiB);
        mine.blocks.deallocate(s, nullptr, 1 * KiB);
        CHECK(mine.blocks.count() == 0);
        CHECK(mine.blocks.lost_bytes() == 0);
    });
}

TEST_CASE("driver_blocks: what captured streams allocate is their graphs', and counts as nobody's") {
    support::every_schedule([] {
        support::scoped_stream const s;
        blocks_and_pool mine;
        {
            support::capture graph(s);
            void* const p = mine.blocks.allocate(s, 1 * MiB, 256);
            CHECK(mine.blocks.count() == 0);
            mine.blocks.deallocate(s, p, 1 * MiB);
            CHECK(graph.unbroken());
        }
        CHECK(mine.blocks.count() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_blocks: where nothing is known of any block, a pair is CUDA's two calls, a question and two guards") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    blocks_and_pool mine;
    std::uint64_t const before = simulated_cuda::calls();
    void* const p = mine.blocks.allocate(s, 1 * KiB, 256);
    CHECK(simulated_cuda::calls("cudaStreamIsCapturing") == 1);
    mine.blocks.deallocate(s, p, 1 * KiB);
    CHECK(simulated_cuda::calls() - before == 2 + 1 + 2 * 2);
}

TEST_CASE("driver_blocks: the host's stream is made when the host allocates or frees first") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    std::uint64_t const before = simulated_cuda::calls("cudaStreamCreateWithFlags");
    blocks_and_pool mine;
    void* const p = mine.blocks.allocate(s, 1 * MiB, 256);
    CHECK(simulated_cuda::calls("cudaStreamCreateWithFlags") == before);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    simulated_cuda::fail_call("cudaStreamCreateWithFlags", 1, cudaErrorUnknown);
    mine.blocks.deallocate(weir::on_host, p, 1 * MiB); // kept
    CHECK(mine.in_use() == 1 * MiB);
    CHECK(mine.blocks.lost_bytes() == 0);
    mine.blocks.settle();
    CHECK(mine.in_use() == 0);
    mine.blocks.deallocate(weir::on_host, mine.blocks.allocate(weir::on_host, 1 * MiB, 256), 1 * MiB);
    CHECK(simulated_cuda::calls("cudaStreamCreateWithFlags") == before + 2); // the one that failed, and one for all
}

TEST_CASE("driver_blocks: what the host uses a block for is over, so noting that asks CUDA nothing") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    blocks_and_pool mine;
    void* const p = mine.blocks.allocate(s, 1 * KiB, 256);
    std::uint64_t const before = simulated_cuda::calls();
    mine.blocks.used_on(p, weir::on_host);
    CHECK(simulated_cuda::calls() == before);
    mine.blocks.deallocate(s, p, 1 * KiB);
    CHECK(simulated_cuda::calls() - before == 1 + 2); // as if nothing were known of it
}

TEST_CASE("driver_blocks: what is known of a block is minded on an ordinary stream, too") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    support::scoped_stream const other;
    blocks_and_pool mine;
    void* const first = mine.blocks.allocate(s, 1 * KiB, 256); // so that the next one begins elsewhere for CUDA
    void* const aligned = mine.blocks.allocate(s, 1 * MiB, 4 * MiB);
    REQUIRE(mine.blocks.begin_of(aligned) != aligned);
    mine.blocks.deallocate(s, aligned, 1 * MiB);
    mine.blocks.deallocate(s, first, 1 * KiB);
    CHECK(mine.blocks.count() == 0);
    CHECK(mine.in_use() == 0);

    void* const used = mine.blocks.allocate(s, 1 * MiB, 256);
    weir::runtime::event allocated(0);
    allocated.record(s);
    allocated.make_wait(other);
    check_cuda(cudaMemsetAsync(used, 1, 1 * MiB, other), "cudaMemsetAsync");
    mine.blocks.used_on(used, other);
    mine.blocks.deallocate(s, used, 1 * MiB); // after the work on 'other', or the device tells
    void* const next = mine.blocks.allocate(s, 1 * MiB, 256);
    check_cuda(cudaMemsetAsync(next, 2, 1 * MiB, s), "cudaMemsetAsync");
    mine.blocks.deallocate(s, next, 1 * MiB);
}

TEST_CASE("driver_blocks: a free that fails before it asks for the block's uses keeps them with it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    blocks_and_pool mine;
    mine.pool.enable_access_from(1);
    support::scoped_stream const s;
    void* const p = mine.blocks.allocate(s, 1 * MiB, 256);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    weir::runtime::device_scope const there(1);
    support::scoped_stream const far;
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, far), "cudaMemsetAsync");
    mine.blocks.used_on(p, far);
    simulated_cuda::fail_call("cudaStreamCreateWithFlags", 1, cudaErrorUnknown); // the host's
    mine.blocks.deallocate(weir::on_host, p, 1 * MiB);
    CHECK(mine.in_use() == 1 * MiB);
    CHECK(simulated_cuda::pending() != 0);
    mine.blocks.settle(); // waits for its own device's work, and for the block's uses
    CHECK(simulated_cuda::pending() == 0);
    CHECK(mine.in_use() == 0);
}

TEST_CASE("driver_blocks: what a captured stream frees from outside is kept until the end, and not freed on another stream") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    support::scoped_stream const other;
    blocks_and_pool mine;
    void* const p = mine.blocks.allocate(s, 1 * MiB, 256);
    {
        support::capture graph(s);
        mine.blocks.deallocate(s, p, 1 * MiB);
        CHECK(graph.unbroken());
    }
    CHECK(mine.blocks.lost_bytes() == 1 * MiB);
    CHECK(mine.blocks.count() == 0);
    CHECK(support::standard_error_of([&] { mine.blocks.deallocate(other, p, 1 * MiB); }).find("freed already") != std::string::npos);
    mine.blocks.settle();
    CHECK(mine.in_use() == 1 * MiB);
}

TEST_CASE("driver_blocks: what others learn of an address while it is handed out is forgotten") {
    // Between the look at what is known and CUDA's answer another thread frees the address, wrongly and where CUDA refuses, or
    // captures it into a graph that goes at once.
    enum { refused, lost, of_graph };
    for (int const how : {refused, lost, of_graph}) {
        CAPTURE(how);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        support::scoped_stream const other;
        blocks_and_pool mine;
        void* p = nullptr;
        if (how != of_graph) {
            p = mine.blocks.allocate(s, 1 * MiB, 256);
            mine.blocks.deallocate(s, p, 1 * MiB);
        }
        static std::function<void()> meanwhile;
        meanwhile = [&] {
            if (how == refused) {
                simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
                mine.blocks.deallocate(other, p, 1 * MiB);
            } else {
                support::capture graph(other, cudaStreamCaptureModeRelaxed);
                if (how == lost)
                    mine.blocks.deallocate(other, p, 1 * MiB);
                else
                    p = mine.blocks.allocate(other, 1 * MiB, 256);
                CHECK(graph.unbroken());
                check_cuda(cudaDeviceGraphMemTrim(0), "cudaDeviceGraphMemTrim");
            }
        };
        simulated_cuda::at_switch_points([] {
            if (auto const once = std::exchange(meanwhile, nullptr))
                once();
        });
        void* const again = mine.blocks.allocate(s, 1 * MiB, 256);
        simulated_cuda::at_switch_points(nullptr);
        CHECK_FALSE(meanwhile);
        REQUIRE(again == p);
        CHECK(mine.blocks.count() == 1);
        CHECK(mine.blocks.lost_bytes() == 0);
        mine.blocks.settle();
        CHECK(mine.in_use() == 1 * MiB);
        mine.blocks.deallocate(s, again, 1 * MiB);
        CHECK(mine.blocks.count() == 0);
        CHECK(mine.in_use() == 0);
    }
}

TEST_CASE("driver_blocks: what CUDA did not take is not freed a second time, and offered by 'settle' and at the end") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    blocks_and_pool mine;
    void* const p = mine.blocks.allocate(s, 1 * MiB, 256);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
    mine.blocks.deallocate(s, p, 1 * MiB);
    CHECK(mine.blocks.count() == 0);
    CHECK(mine.in_use() == 1 * MiB);
    std::string const said = support::standard_error_of([&] { mine.blocks.deallocate(s, p, 1 * MiB); });
    CHECK(said.find("pool 'mine'") != std::string::npos);
    CHECK(said.find("is freed already; free each block once") != std::string::npos);
    CHECK(mine.in_use() == 1 * MiB);
    mine.blocks.settle();
    CHECK(mine.in_use() == 0);
    void* const last = mine.blocks.allocate(s, 1 * MiB, 256);
    simulated_cuda::fail_call("cudaThreadExchangeStreamCaptureMode", 1, cudaErrorUnknown); // the guard's
    mine.blocks.deallocate(s, last, 1 * MiB);
    CHECK(mine.in_use() == 1 * MiB);
    // its end gives it back: the world reports what is left
}

TEST_CASE("driver_blocks: its end gives back what CUDA did not take, also where one call fails then") {
    for (char const* const call : {"cudaFree", "cudaFreeAsync"}) {
        CAPTURE(call);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        weir::driver_pool_options const options = weir::driver_pool_options{}.name("mine").device(0);
        weir::runtime::cuda_pool pool(of_device_0());
        auto blocks = std::make_unique<driver_blocks>(pool, weir::memory_space::device, options);
        void* const p = blocks->allocate(s, 1 * MiB, 256);
        simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
        blocks->deallocate(s, p, 1 * MiB);
        REQUIRE(pool.statistics().in_use_bytes == 1 * MiB);
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
        blocks.reset();
        CHECK(simulated_cuda::failed_calls() == 2);
        CHECK(pool.statistics().in_use_bytes == 0);
    }
}

TEST_CASE("driver_blocks: a graph's own block that CUDA does not free at once has no use that a sentence could tell of") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    blocks_and_pool mine;
    support::capture graph(s);
    void* const p = mine.blocks.allocate(s, 1 * MiB, 256);
    simulated_cuda::fail_call("cudaFreeAsync", 1, cudaErrorUnknown);
    CHECK(support::standard_error_of([&] { mine.blocks.deallocate(s, p, 1 * MiB); }).empty());
    CHECK(graph.unbroken());
}
#endif
