// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a captured stream frees is its graph's until nothing is left of the graph, whatever CUDA call of the free fails.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <string>
#include <support/every_schedule.hpp>
#include <support/host_driver_pools.hpp>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/recipes.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <reuse/stage.hpp>
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using weir::check_cuda;
using weir::KiB;
using weir::MiB;

#define OWN_POOLS weir::device_pool, weir::compact_device_pool, weir::pinned_pool, weir::managed_pool

namespace {

bool overlap(void const* p, void const* q, std::size_t bytes) {
    auto const a = reinterpret_cast<std::uintptr_t>(p), b = reinterpret_cast<std::uintptr_t>(q);
    return a < b + bytes && b < a + bytes;
}

// Allocates until nothing is left: whether no block lies in the one that was at `p`.
template <class Pool>
bool keeps(Pool& pool, void const* p, std::size_t bytes, cudaStream_t on) {
    std::vector<void*> all;
    bool kept = true;
    while (void* const q = all.size() < 300 ? pool.try_allocate(on, bytes) : nullptr) {
        kept &= !overlap(p, q, bytes);
        all.push_back(q);
    }
    for (void* const each : all)
        pool.deallocate(on, each, bytes);
    return kept;
}

// CUDA tells of a graph's end some time after its last launch.
template <class Pool>
std::size_t lost_bytes_at_last(Pool& pool, cudaStream_t s) {
    for (int turns = 0; turns < 1'000'000 && pool.state().lost_bytes != 0; ++turns)
        static_cast<void>(cudaStreamQuery(s));
    return pool.state().lost_bytes;
}

} // namespace

TEST_CASE_TEMPLATE("captured frees: graph after graph, a block comes back once nothing is left of its graph, and no sooner", Pool,
                   OWN_POOLS) {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        Pool pool(weir::pool_options{}.limit(32 * MiB));
        for (int round = 0; round < 5; ++round) {
            CAPTURE(round);
            void* const p = pool.allocate(s, 20 * MiB);
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t runs = nullptr;
            check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
            check_cuda(cudaMemsetAsync(p, round, 20 * MiB, s), "cudaMemsetAsync");
            pool.deallocate(s, p, 20 * MiB);
            check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
            check_cuda(cudaGraphInstantiate(&runs, graph, 0), "cudaGraphInstantiate");
            check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
            pool.settle();
            CHECK(pool.state().lost_bytes == 20 * MiB);
            CHECK(pool.state().live_blocks == 0);
            CHECK(pool.try_allocate(t, 20 * MiB) == nullptr);
            check_cuda(cudaGraphLaunch(runs, t), "cudaGraphLaunch");
            check_cuda(cudaGraphExecDestroy(runs), "cudaGraphExecDestroy");
            check_cuda(cudaStreamSynchronize(t), "cudaStreamSynchronize");
            REQUIRE(lost_bytes_at_last(pool, t) == 0);
        }
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace {

namespace device = simulated_cuda;

// What a stream is, and what frees the block.
struct way {
    bool per_thread; // the captured stream is the thread's own default stream
    bool marked;     // another stream frees the block, and the captured one was marked
    bool elsewhere;  // another device is current at the free
    device::lasting how;
};

} // namespace

TEST_CASE_TEMPLATE("captured frees: whatever call of it fails, its graph alone may use the block, and the capture lives on", Pool,
                   OWN_POOLS, weir::driver_pool, SUPPORT_HOST_DRIVER_POOLS) {
    constexpr device::lasting once = device::lasting::once, for_ever = device::lasting::for_ever;
    for (way const each : {way{false, false, false, once}, way{true, false, false, once}, way{true, false, true, once},
                           way{false, true, false, once}, way{true, true, false, once}, way{false, false, false, for_ever},
                           way{true, false, false, for_ever}, way{true, false, true, for_ever},
                           way{false, true, false, for_ever}, way{true, true, false, for_ever}}) {
        CAPTURE(each.per_thread);
        CAPTURE(each.marked);
        CAPTURE(each.elsewhere);
        CAPTURE((each.how == once));
        if (each.elsewhere && Pool::space != weir::memory_space::device)
            continue; // its default streams are the current device's
        std::uint64_t fails = 1;
        for (std::uint64_t k = 1; fails != 0; ++k) {
            REQUIRE(k < 40);
            CAPTURE(k);
            device::config settings = device::config{}.late().with_memory(32 * MiB).with_devices(2);
            settings.pinned_bytes = 32 * MiB;
            device::world world(settings);
            {
                support::scoped_stream const s, t;
                cudaStream_t const captured = each.per_thread ? cudaStreamPerThread : static_cast<cudaStream_t>(s);
                cudaStream_t const freeing = each.marked ? static_cast<cudaStream_t>(t) : captured;
                Pool pool;
                void* const p = pool.allocate(freeing, 1 * MiB);
                check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                if (each.marked)
                    pool.used_on(p, captured);
                check_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
                check_cuda(device::launch(captured, {}, {{p, 1 * MiB}}), "launch");
                if (each.elsewhere)
                    check_cuda(cudaSetDevice(1), "cudaSetDevice");
                std::uint64_t const before = device::failed_calls();
                device::fail_call(k, cudaErrorUnknown, each.how);
                pool.deallocate(freeing, p, 1 * MiB);
                device::clear_faults();
                fails = device::failed_calls() - before;
                check_cuda(cudaSetDevice(0), "cudaSetDevice");
                cudaGraph_t graph = nullptr;
                cudaGraphExec_t runs = nullptr;
                CHECK(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
                check_cuda(cudaGraphInstantiate(&runs, graph, 0), "cudaGraphInstantiate");
                check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
                pool.settle();
                CHECK(keeps(pool, p, 1 * MiB, t));
                check_cuda(cudaGraphLaunch(runs, t), "cudaGraphLaunch");
                check_cuda(cudaGraphExecDestroy(runs), "cudaGraphExecDestroy");
                check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            }
            for (device::report const& found : world.finish())
                CHECK_MESSAGE(found.kind == device::finding::leak, found.sentence); // an event that CUDA did not destroy
        }
    }
}

TEST_CASE_TEMPLATE("captured frees: a graph that never ran leaves work from before the capture, which is waited for", Pool,
                   OWN_POOLS) {
    stage::world const here;
    stage::stream s, t;
    auto pool = stage::watched<Pool>::limited(32 * MiB);
    void* const p = pool.write(s, 20 * MiB);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    pool.deallocate(s, p, 20 * MiB);
    check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    REQUIRE(lost_bytes_at_last(*pool, t) == 0);
    CHECK(pool->state().unsettled_bytes == 20 * MiB);
    pool.deallocate(t, pool.write(t, 20 * MiB), 20 * MiB); // at the limit, so it waits for that work
    stage::check_all_returns(pool);
}

TEST_CASE_TEMPLATE("captured frees: a block that two graphs use is nobody's when one of them is gone", Pool, OWN_POOLS) {
    for (bool const first_goes : {false, true}) {
        CAPTURE(first_goes);
        stage::world const here;
        stage::stream s, t;
        auto pool = stage::watched<Pool>::limited(32 * MiB);
        void* const p = pool.allocate(s, 20 * MiB);
        pool->used_on(p, t);
        cudaGraph_t graphs[2] = {};
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
        check_cuda(cudaStreamBeginCapture(t, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
        pool.deallocate(s, p, 20 * MiB);
        check_cuda(cudaStreamEndCapture(s, &graphs[0]), "cudaStreamEndCapture");
        check_cuda(cudaStreamEndCapture(t, &graphs[1]), "cudaStreamEndCapture");
        check_cuda(cudaGraphDestroy(graphs[first_goes ? 0 : 1]), "cudaGraphDestroy");
        pool->settle();
        CHECK(pool->state().lost_bytes == 20 * MiB);
        CHECK(pool.try_allocate(s, 20 * MiB) == nullptr);
        check_cuda(cudaGraphDestroy(graphs[first_goes ? 1 : 0]), "cudaGraphDestroy");
    }
}

#endif
