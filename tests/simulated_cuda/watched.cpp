// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does the layer that users wrap around a pool let the device see mistakes within the pool's chunks, and nothing else?

#include "simulated_cuda/simulated_cuda.hpp"

#include "include/weir/simulated_device/watched.hpp"

#include <doctest/doctest.h>
#include <weir/weir.hpp>

namespace {

namespace sim = simulated_cuda;
using watched_pool = sim::watched<weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>>;

struct two_streams {
    two_streams() {
        for (cudaStream_t* each : {&a, &b})
            REQUIRE(cudaStreamCreateWithFlags(each, cudaStreamNonBlocking) == cudaSuccess);
    }
    ~two_streams() {
        for (cudaStream_t each : {a, b})
            CHECK(cudaStreamDestroy(each) == cudaSuccess);
    }
    cudaStream_t a = nullptr, b = nullptr;
};

struct step {
    char const* name;
    void (*use)(watched_pool&, two_streams const&);
    bool wrong = false;
    sim::finding kind = {};
};

// What is wrong is found whenever work runs, once, and what is right is not.
void judge(step const& each) {
    for (sim::config const& settings : {sim::config{}.late(), sim::config{}.eager()}) {
        CAPTURE(std::string(each.name));
        sim::world world(sim::config(settings).with_devices(2));
        {
            two_streams const on;
            watched_pool pool;
            each.use(pool, on);
        }
        auto const found = world.finish();
        CHECK(found.size() == (each.wrong ? 1 : 0));
        for (sim::report const& one : found)
            CHECK_MESSAGE((each.wrong && one.kind == each.kind), one.sentence);
    }
}

void use(void* p, cudaStream_t stream) { CHECK(cudaMemsetAsync(p, 0, 1000, stream) == cudaSuccess); }

static_assert(sim::is_noted<weir::device_pool>() && sim::is_noted<weir::pinned_pool>());
static_assert(!sim::is_noted<weir::host_pool>() && !sim::is_noted<weir::driver_pool>());

} // namespace

TEST_CASE("watched: a write beyond a block and a use after its free are reported, and what is right is not") {
    step const steps[] = {
        {"right", [](watched_pool& pool, two_streams const& on) { use(weir::device_buffer(pool, on.a, 1000).data(), on.a); }},
        {"beyond", [](watched_pool& pool, two_streams const& on) { use(weir::device_buffer(pool, on.a, 999).data(), on.a); }, true,
         sim::finding::out_of_bounds},
        {"after the free", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             pool.deallocate(on.a, p, 1000);
             use(p, on.a);
         }, true, sim::finding::use_after_free},
        {"on the host", [](watched_pool& pool, two_streams const&) {
             void* const p = pool.allocate_sync(1000);
             CHECK(cudaMemset(p, 0, 1000) == cudaSuccess);
             CHECK(cudaDeviceSynchronize() == cudaSuccess);
             pool.deallocate_sync(p, 1000);
         }},
    };
    for (step const& each : steps)
        judge(each);
}

TEST_CASE("watched: a free that does not come after a use on another stream is reported at the free") {
    step const steps[] = {
        {"nothing said", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             weir::order_after(on.b, on.a);
             use(p, on.b);
             CHECK(sim::reports().empty());
             pool.deallocate(on.a, p, 1000);
             CHECK(sim::reports(sim::finding::early_free).size() == 1);
             pool.deallocate(on.a, pool.allocate(on.a, 1000), 1000); // the same bytes: no second report
         }, true, sim::finding::early_free},
        {"a container, nothing said", [](watched_pool& pool, two_streams const& on) {
             weir::device_buffer const block(pool, on.a, 1000);
             weir::order_after(on.b, on.a);
             CHECK(sim::launch(on.b, {{block.data(), 1000}}, {}) == cudaSuccess);
         }, true, sim::finding::early_free},
        {"on the wrong stream", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             use(p, on.a);
             pool.deallocate(on.b, p, 1000);
         }, true, sim::finding::early_free},
        {"on the host", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             use(p, on.a);
             pool.deallocate_sync(p, 1000);
         }, true, sim::finding::early_free},
        {"a use after the last", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             weir::order_after(on.b, on.a);
             use(p, on.b);
             pool.last_used_on(p, on.b);
             use(p, on.b);
             pool.deallocate(on.a, p, 1000);
         }, true, sim::finding::early_free},
        {"said of the block's last life", [](watched_pool& pool, two_streams const& on) {
             void* p = nullptr;
             for (bool const says : {true, false}) {
                 p = pool.allocate(on.a, 1000);
                 weir::order_after(on.b, on.a);
                 use(p, on.b);
                 if (says)
                     pool.used_on(p, on.b);
                 pool.deallocate(on.a, p, 1000);
             }
         }, true, sim::finding::early_free},
        {"said", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             pool.used_on(p, on.b);
             weir::order_after(on.b, on.a);
             use(p, on.b);
             pool.deallocate(on.a, p, 1000);
         }},
        {"a container, said", [](watched_pool& pool, two_streams const& on) {
             weir::device_buffer block(pool, on.a, 1000);
             block.used_on(on.b);
             weir::order_after(on.b, on.a);
             use(block.data(), on.b);
         }},
        {"said, and freed on the host", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate_sync(1000);
             pool.used_on(p, on.b);
             use(p, on.b);
             pool.deallocate_sync(p, 1000);
         }},
        {"said of the last use", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             weir::order_after(on.b, on.a);
             use(p, on.b);
             pool.last_used_on(p, on.b);
             pool.deallocate(on.a, p, 1000);
         }},
        {"ordered", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             weir::order_after(on.b, on.a);
             use(p, on.b);
             weir::order_after(on.a, on.b);
             pool.deallocate(on.a, p, 1000);
         }},
        {"waited for", [](watched_pool& pool, two_streams const& on) {
             void* const p = pool.allocate(on.a, 1000);
             use(p, on.a);
             CHECK(cudaStreamSynchronize(on.a) == cudaSuccess);
             pool.deallocate(on.b, p, 1000);
         }},
        {"ordered by the legacy stream", [](watched_pool& pool, two_streams const&) {
             cudaStream_t blocking = nullptr;
             REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
             for (bool const frees_on_legacy : {true, false}) {
                 void* const p = pool.allocate(frees_on_legacy ? blocking : cudaStreamLegacy, 1000);
                 use(p, frees_on_legacy ? blocking : cudaStreamLegacy);
                 pool.deallocate(frees_on_legacy ? cudaStreamLegacy : blocking, p, 1000);
             }
             CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
         }},
    };
    for (step const& each : steps)
        judge(each);
}

TEST_CASE("watched: a default stream is the memory's device's, and at a free the current device's as well") {
    step const steps[] = {
        {"another device is current at the end", [](watched_pool& pool, two_streams const&) {
             for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread}) {
                 weir::device_buffer block(pool, each, 1000);
                 use(block.data(), each);
                 CHECK(cudaSetDevice(1) == cudaSuccess);
             }
             CHECK(cudaSetDevice(0) == cudaSuccess);
         }},
        {"another device is current at the beginning", [](watched_pool& pool, two_streams const&) {
             for (int round = 0; round < 2; ++round) {
                 CHECK(cudaSetDevice(1) == cudaSuccess);
                 weir::device_buffer block(pool, cudaStreamLegacy, 1000);
                 CHECK(cudaSetDevice(0) == cudaSuccess);
                 use(block.data(), cudaStreamLegacy);
             }
         }},
        {"both devices use it", [](watched_pool& pool, two_streams const&) {
             void* const p = pool.allocate(cudaStreamLegacy, 1000);
             use(p, cudaStreamLegacy);
             CHECK(cudaDeviceSynchronize() == cudaSuccess);
             CHECK(cudaSetDevice(1) == cudaSuccess);
             CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
             use(p, cudaStreamLegacy);
             pool.deallocate(cudaStreamLegacy, p, 1000);
             CHECK(cudaSetDevice(0) == cudaSuccess);
         }},
        {"a stream of neither", [](watched_pool& pool, two_streams const& on) {
             weir::device_buffer block(pool, cudaStreamLegacy, 1000);
             use(block.data(), on.a);
             CHECK(cudaSetDevice(1) == cudaSuccess);
         }, true, sim::finding::early_free},
    };
    for (step const& each : steps)
        judge(each);
    CHECK(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("watched: what CUDA's own pools hand out below it is theirs to free") {
    for (sim::config const& settings : {sim::config{}.late(), sim::config{}.eager()})
        for (char const* const name : {"driver", "pinned_driver"}) {
            CAPTURE(std::string(name));
            sim::world world(settings);
            {
                two_streams const on;
                sim::watched<weir::any_device_pool> pool{weir::make_pool(name)};
                void* p = pool.allocate(on.a, 1000);
                use(p, on.a);
                pool.deallocate(on.a, p, 1000);
                p = pool.allocate_sync(1000);
                pool.deallocate_sync(p, 1000);
                cudaGraph_t graph = nullptr;
                cudaGraphExec_t runs = nullptr;
                CHECK(cudaStreamBeginCapture(on.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
                void* const of_graph = pool.allocate(on.a, 1000);
                use(of_graph, on.a);
                CHECK(cudaStreamEndCapture(on.a, &graph) == cudaSuccess);
                CHECK(cudaGraphInstantiate(&runs, graph, 0) == cudaSuccess);
                for (int round = 0; round < 2; ++round) {
                    CHECK(cudaGraphLaunch(runs, on.a) == cudaSuccess);
                    use(of_graph, on.a);
                    pool.deallocate(on.a, of_graph, 1000);
                }
                CHECK(cudaGraphExecDestroy(runs) == cudaSuccess);
                CHECK(cudaGraphDestroy(graph) == cudaSuccess);
                {
                    using chunks = weir::upstream::from_pool<weir::driver_pool>;
                    weir::driver_pool below;
                    sim::watched<weir::pool<chunks, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>> above{
                        chunks(below, weir::on_host)};
                    use(weir::device_buffer(above, on.b, 1000).data(), on.b);
                }
            }
            for (sim::report const& one : world.finish())
                FAIL_CHECK(one.sentence);
        }
}

TEST_CASE("watched: a pool that suspends saves what it holds, handed out or not") {
    for (sim::config const& settings : {sim::config{}.late(), sim::config{}.eager()}) {
        sim::world world(settings);
        {
            two_streams const on;
            weir::pinned_pool keep;
            sim::watched<weir::device_pool> pool;
            void* const stays = pool.allocate(on.a, 1000);
            use(stays, on.a);
            void* const goes = pool.allocate(on.a, 3000);
            use(weir::device_buffer(pool, on.b, 1000).data(), on.b);
            CHECK(pool.suspend(keep) != 0);
            pool.deallocate(on.a, goes, 3000);
            pool.resume();
            use(stays, on.a);
            CHECK(pool.suspend(keep, {{stays, 1000}}) != 0);
            pool.resume();
            CHECK(pool.suspend() != 0);
            pool.resume();
            use(stays, on.a);
            pool.deallocate(on.a, stays, 1000);
        }
        for (sim::report const& one : world.finish())
            FAIL_CHECK(one.sentence);
    }
}
