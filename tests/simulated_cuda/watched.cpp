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
        sim::world world(settings);
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
