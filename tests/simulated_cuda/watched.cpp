// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does the layer that users wrap around a pool let the device see mistakes within the pool's chunks, and nothing else?

#include "simulated_cuda/simulated_cuda.hpp"

#include "include/weir/simulated_device/watched.hpp"

#include <doctest/doctest.h>
#include <weir/weir.hpp>

namespace {

namespace sim = simulated_cuda;
using watched_pool = sim::watched<weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>>;

static_assert(sim::is_noted<weir::device_pool>() && sim::is_noted<weir::pinned_pool>());
static_assert(!sim::is_noted<weir::host_pool>() && !sim::is_noted<weir::driver_pool>());

} // namespace

TEST_CASE("watched: a write beyond a block and a use after its free are reported, and what is right is not") {
    struct {
        char const* name;
        void (*use)(watched_pool&, cudaStream_t);
        bool wrong;
        sim::finding kind;
    } const uses[] = {
        {"right", [](watched_pool& pool, cudaStream_t stream) {
             weir::device_buffer block(pool, stream, 1000);
             CHECK(cudaMemsetAsync(block.data(), 0, 1000, stream) == cudaSuccess);
         }, false, {}},
        {"beyond", [](watched_pool& pool, cudaStream_t stream) {
             weir::device_buffer block(pool, stream, 1000);
             CHECK(cudaMemsetAsync(block.data(), 0, 1001, stream) == cudaSuccess);
         }, true, sim::finding::out_of_bounds},
        {"after the free", [](watched_pool& pool, cudaStream_t stream) {
             void* const p = pool.allocate(stream, 1000);
             pool.deallocate(stream, p, 1000);
             CHECK(cudaMemsetAsync(p, 0, 1000, stream) == cudaSuccess);
         }, true, sim::finding::use_after_free},
        {"on the host", [](watched_pool& pool, cudaStream_t) {
             void* const p = pool.allocate_sync(1000);
             CHECK(cudaMemset(p, 0, 1000) == cudaSuccess);
             CHECK(cudaDeviceSynchronize() == cudaSuccess);
             pool.deallocate_sync(p, 1000);
         }, false, {}},
    };
    for (auto const& each : uses) {
        CAPTURE(std::string(each.name));
        sim::world world(sim::config{}.late());
        {
            watched_pool pool;
            each.use(pool, nullptr);
        }
        auto const found = world.finish();
        CHECK(found.size() == (each.wrong ? 1 : 0));
        if (each.wrong && !found.empty())
            CHECK(found.front().kind == each.kind);
    }
}
