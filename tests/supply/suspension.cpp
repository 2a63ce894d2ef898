// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What of a pool is saved and what it takes to come back. What 'suspend' and 'resume' do with contents, with graphs and under
// faults is in saved_contents.cpp.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <utility>
#include <vector>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/recipes.hpp>
#include <weir/supply/suspension.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::KiB;
using weir::live_block;
using weir::MiB;
using weir::on_host;

namespace {

using mapped_pool = weir::pool<weir::upstream::virtual_memory<>, weir::recipes::general_placement, weir::reuse::stream_ordered<>,
                               weir::growth::by_holes<>>;
using simple_pool = weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::immediate,
                               weir::growth::by_holes<>>;

template <class Pool>
live_block filled(Pool& pool, std::size_t bytes, int value) {
    live_block const b{pool.allocate(on_host, bytes), bytes};
    check_cuda(cudaMemset(const_cast<void*>(b.address), value, bytes), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return b;
}

bool holds(live_block b, unsigned char value) {
    std::vector<unsigned char> host(b.bytes);
    check_cuda(cudaMemcpy(host.data(), b.address, b.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host == std::vector<unsigned char>(b.bytes, value);
}

template <class Pool>
void give(Pool& pool, live_block b) {
    pool.deallocate_sync(const_cast<void*>(b.address), b.bytes);
}

} // namespace

TEST_CASE("suspension: only the blocks that are named are saved, or parts of them") {
    support::every_schedule([] {
        weir::pinned_pool keep;
        weir::layer::statistics<mapped_pool> pool; // layers pass it on
        live_block const weights = filled(pool, 10 * MiB, 1);
        live_block const cache = filled(pool, 40 * MiB, 2);
        live_block const table = filled(pool, 10 * KiB, 3);
        live_block const row{static_cast<char const*>(table.address) + 4 * KiB, 1 * KiB};
        pool.suspend(keep, {weights, row, {}});
        CHECK(pool.suspended());
        CHECK(pool.reserved_bytes() == 0);
        CHECK(keep.in_use_bytes() >= weights.bytes + row.bytes);
        CHECK(keep.in_use_bytes() < weights.bytes + 2 * row.bytes + 4 * KiB);
        CHECK(pool.suspended_bytes() >= weights.bytes + cache.bytes);
        pool.resume();
        CHECK(pool.suspended_bytes() == 0);
        CHECK(keep.in_use_bytes() == 0);
        CHECK(holds(weights, 1));
        CHECK(holds(row, 3));
        check_cuda(cudaMemset(const_cast<void*>(cache.address), 7, cache.bytes), "cudaMemset"); // what was not saved is memory again

        std::vector<live_block> const listed{cache};
        pool.suspend(keep, listed); // any list
        pool.resume();
        CHECK(holds(cache, 7));
        for (live_block const& each : {weights, cache, table})
            give(pool, each);
    });
}

TEST_CASE("suspension: a copy that is kept is good for the next time, if the pool has the same blocks") {
    support::every_schedule([] {
        weir::host_pool keep;
        weir::layer::statistics<mapped_pool> pool; // layers pass it on
        weir::base::shared<weir::supply::saved_contents> copy;
        live_block const weights = filled(pool, 3 * MiB, 1);
        weir::supply::saved_contents const* first = nullptr;
        for (int round = 0; round < 3; ++round) {
            pool.suspend(keep, weir::supply::kept_in{copy});
            first = round == 0 ? &*copy : first;
            CHECK(&*copy == first); // and so nothing was copied
            std::size_t const kept = keep.in_use_bytes();
            CHECK(kept >= weights.bytes);
            pool.resume();
            CHECK(keep.in_use_bytes() == kept);
            CHECK(holds(weights, 1));
        }
        live_block const more = filled(pool, 2 * MiB, 2);
        pool.suspend(keep, weir::supply::kept_in{copy});
        pool.resume();
        CHECK(holds(weights, 1));
        CHECK(holds(more, 2));

        give(pool, weights);
        live_block const other = filled(pool, 1 * MiB, 3);
        pool.suspend(keep, weir::supply::kept_in{copy});
        copy = {}; // the pool has it, too, until it has resumed
        pool.resume();
        CHECK(keep.in_use_bytes() == 0);
        CHECK(holds(more, 2));
        CHECK(holds(other, 3));
        give(pool, more);
        give(pool, other);
    });
}

TEST_CASE("suspension: what is not the pool's is not saved, and the pool stays as it was") {
    support::every_schedule([] {
        weir::host_pool keep;
        mapped_pool pool, other;
        live_block const mine = filled(pool, 1 * MiB, 1);
        live_block const theirs = filled(other, 1 * MiB, 2);
        live_block const freed = filled(pool, 60 * MiB, 3); // its chunks go back before anything is copied
        give(pool, freed);
        for (live_block const& wrong : {theirs, live_block{&keep, 1}, live_block{mine.address, std::size_t{1} << 40},
                                        live_block{mine.address, SIZE_MAX}, freed}) {
            std::string const said = sentence_of<weir::usage_error>([&] { pool.suspend(keep, {mine, wrong}); });
            CHECK_SAYS(said, "cannot be saved: they are not all in pool 'unnamed'; name blocks of this pool");
            CHECK_FALSE(pool.suspended());
        }
        CHECK(keep.in_use_bytes() == 0);
        CHECK(holds(mine, 1));
        give(pool, mine);
        give(other, theirs);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("suspension: a copy by peers on another device's stream is over before the memory goes, though it is open to none") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    mapped_pool pool;
    live_block const b = filled(pool, 2 * MiB, 7);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const far;
    void* there = nullptr;
    check_cuda(cudaMalloc(&there, b.bytes), "cudaMalloc");
    check_cuda(cudaMemcpyPeerAsync(there, 1, b.address, 0, b.bytes, far), "cudaMemcpyPeerAsync");
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    CHECK(simulated_cuda::pending() == 1);
    CHECK(pool.suspend() != 0);
    CHECK(simulated_cuda::pending() == 0);
    CHECK(holds(live_block{there, b.bytes}, 7));
    pool.resume();
    give(pool, b);
    check_cuda(cudaFree(there), "cudaFree");
}
#endif

TEST_CASE("suspension: a pool for one thread is suspended under a lock") {
    support::every_schedule([] {
        weir::host_pool keep;
        weir::layer::synchronized<simple_pool> pool;
        live_block const a = filled(pool, 1 * MiB, 1);
        pool.suspend(keep, {a});
        CHECK(pool.suspended_bytes() >= 1 * MiB);
        CHECK(pool.try_resume());
        CHECK(pool.try_resume()); // nothing to do
        CHECK(holds(a, 1));
        give(pool, a);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("suspension: where the device has no room, 'try_resume' says so, and 'resume' what lives") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(256 * MiB));
    weir::layer::guard<mapped_pool> pool;
    live_block const a = filled(pool, 200 * MiB, 4);
    pool.suspend();
    void* others = nullptr;
    check_cuda(cudaMalloc(&others, 100 * MiB), "cudaMalloc");
    CHECK_FALSE(pool.try_resume());
    std::string const said = sentence_of<weir::out_of_memory>([&] { pool.resume(); });
    CHECK_SAYS(said, "the device has no room for what the pool held before 'suspend'; free something elsewhere");
    CHECK_SAYS(said, "; the largest live blocks: 200 MiB at ");
    CHECK_SAYS(said, "cannot hand out " + std::to_string(pool.suspended_bytes()) + " bytes");
    CHECK(pool.suspended());
    check_cuda(cudaFree(others), "cudaFree");
    CHECK(pool.try_resume());
    give(pool, a);
}

TEST_CASE("suspension: a suspended pool without blocks is trimmed to nothing, also of what was freed meanwhile") {
    simulated_cuda::world const world(simulated_cuda::config{}.late());
    support::scoped_stream const s;
    mapped_pool pool;
    live_block const a = filled(pool, 3 * MiB, 1);
    void* const b = pool.allocate(s, 3 * MiB);
    pool.suspend();
    give(pool, a);
    pool.deallocate(s, b, 3 * MiB); // its event is not reached
    CHECK(pool.suspended_bytes() != 0);
    CHECK(pool.state().largest_free_bytes == 0); // it hands nothing out
    pool.trim();
    CHECK(pool.suspended_bytes() == 0);
    pool.resume();
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE("suspension: a suspended pool without blocks is trimmed to nothing, also of frees that no event tells of") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool;
    for (int i = 0; i < 200; ++i) // a stream that frees much keeps its last frees open
        pool.deallocate(s, pool.allocate(s, 1 * KiB), 1 * KiB);
    std::vector<void*> blocks;
    for (int i = 0; i < 20; ++i)
        blocks.push_back(pool.allocate(s, 1 * KiB));
    pool.suspend();
    for (void* each : blocks)
        pool.deallocate(s, each, 1 * KiB);
    CHECK(pool.suspended_bytes() != 0);
    pool.trim(); // what 'resume' would bring is held, too: it settles for that
    CHECK(pool.suspended_bytes() == 0);
    pool.resume();
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE("suspension: a pool that could not copy back holds none of the device's memory while it stays suspended") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    weir::host_pool keep;
    mapped_pool pool;
    live_block const a = filled(pool, 8 * MiB, 5);
    pool.suspend(keep);
    simulated_cuda::fail_call("cudaMemcpyAsync", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(static_cast<void>(pool.try_resume()), weir::cuda_error);
    CHECK(pool.suspended());
    CHECK(pool.reserved_bytes() == 0);
    CHECK(pool.suspended_bytes() >= 8 * MiB);
    pool.resume();
    CHECK(holds(a, 5));
    give(pool, a);
}

TEST_CASE("suspension: to come back, a pool asks its failure handler for memory") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(256 * MiB));
    weir::host_pool keep;
    mapped_pool other;
    int asked = 0;
    auto const count = [&](weir::failed_allocation const& failed) {
        ++asked;
        CHECK(failed.stream.is_host());
        CHECK(failed.bytes >= 150 * MiB);
        return false;
    };
    auto handlers = [&, trims = weir::handler::trim(other)](weir::failed_allocation const& failed) mutable {
        return count(failed) || trims(failed);
    };
    weir::layer::failure_handler<mapped_pool, decltype(handlers)&> pool(handlers);
    live_block const a = filled(pool, 150 * MiB, 4);
    pool.suspend(keep);
    give(other, filled(other, 200 * MiB, 5));
    pool.resume(); // the other pool's memory is all free
    CHECK(asked == 1);
    CHECK(other.reserved_bytes() == 0);
    CHECK(holds(a, 4));
    pool.resume(); // nothing to do, nobody to ask
    CHECK(asked == 1);

    pool.suspend(keep);
    live_block const b = filled(other, 200 * MiB, 6);
    CHECK_FALSE(pool.try_resume());
    CHECK(asked == 2);
    CHECK(pool.suspended());
    give(other, b);
    CHECK(pool.try_resume());
    CHECK(holds(a, 4));
    give(pool, a);
}

TEST_CASE("suspension: whatever call fails while some blocks are saved, no byte of theirs is lost") {
    struct scene {
        weir::pinned_pool keep;
        mapped_pool pool;
        live_block a = filled(pool, 5 * MiB, 1);
        live_block b = filled(pool, 5 * MiB, 2);
    };
    auto const judge = [](scene& x, support::struck const& fault) {
        if (fault.for_ever) // the end of the scene is what is left
            return;
        if (x.pool.suspended())
            x.pool.resume();
        CHECK(holds(x.a, 1));
        CHECK(x.keep.in_use_bytes() == 0);
        for (live_block const& each : {x.a, x.b})
            give(x.pool, each);
    };
    auto const runs = support::fault_sweep([] { return std::make_unique<scene>(); },
                                           [](scene& x) { x.pool.suspend(x.keep, {x.a}); }, judge, support::faults::pairs_too);
    CHECK(runs >= 20);
}
#endif
