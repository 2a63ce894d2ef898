// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Memory that is taken away and comes back with its contents: alone, and through 'suspend' and 'resume' of pools.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/filled.hpp>
#include <support/growth_numbers.hpp>
#include <vector>
#include <weir/growth/paged.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/recipes.hpp>
#include <weir/supply/saved_contents.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::check_cuda;
using weir::KiB;
using weir::MiB;

namespace {

using pages = support::paged_of<512, 2 * MiB, 64 * MiB>;
template <class Reuse>
using pool_over = weir::pool<weir::upstream::virtual_memory<>, weir::recipes::general_placement, Reuse, pages>;
using mapped_pool = pool_over<weir::reuse::stream_ordered<>>;

struct block {
    void* p = nullptr;
    std::size_t bytes = 0;
    unsigned char value = 0;
};

template <class Pool>
block take(Pool& pool, cudaStream_t s, std::size_t bytes, unsigned char value) {
    block const b{pool.allocate(s, bytes), bytes, value};
    check_cuda(cudaMemsetAsync(b.p, value, bytes, s), "cudaMemsetAsync");
    return b;
}

// Whether every byte has the value that was written.
bool is_whole(block b) {
    std::vector<unsigned char> host(b.bytes);
    check_cuda(cudaMemcpy(host.data(), b.p, b.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return support::filled(host, b.value);
}

bool says(weir::text const& what, char const* words) {
    return std::string(what).find(words) != std::string::npos;
}

} // namespace

TEST_CASE("saved_contents: memory comes back as it was, as often as it is wanted") {
    support::every_schedule([] {
        weir::pinned_pool keep;
        char* p = nullptr;
        check_cuda(cudaMalloc(reinterpret_cast<void**>(&p), 600 * MiB), "cudaMalloc");
        check_cuda(cudaMemset(p, 7, 600 * MiB), "cudaMemset");
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        {
            weir::supply::saved_contents saved(keep, 0);
            saved.add(weir::base::range{reinterpret_cast<std::uintptr_t>(p) + 100, 300 * MiB}); // more than a block
            saved.add(weir::base::range{reinterpret_cast<std::uintptr_t>(p) + 400 * MiB, 1});
            saved.save();
            saved.finish();
            CHECK(keep.in_use_bytes() >= 300 * MiB);
            CHECK(keep.state().live_blocks == 2); // none as large as all of them
            for (int i = 0; i < 2; ++i) {
                check_cuda(cudaMemset(p, 0, 600 * MiB), "cudaMemset");
                check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                weir::supply::chunk_list held; // and nothing that is not here
                held.reserve(3);
                auto const at_p = reinterpret_cast<std::uintptr_t>(p);
                held.add(weir::base::range{at_p, 256 * MiB});
                held.add(weir::base::range{at_p + 256 * MiB, 8 * MiB});
                held.add(weir::base::range{at_p + 300 * MiB, 300 * MiB});
                saved.restore(held);
                unsigned char at[9] = {};
                std::size_t const places[] = {99,            100,           256 * MiB + 100, 300 * MiB + 99, 300 * MiB + 100, 400 * MiB,
                                              264 * MiB - 1, 264 * MiB + 0, 300 * MiB - 1};
                for (std::size_t k = 0; k < 9; ++k)
                    check_cuda(cudaMemcpy(&at[k], p + places[k], 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
                CHECK((at[0] == 0 && at[1] == 7 && at[2] == 7 && at[3] == 7 && at[4] == 0 && at[5] == 7));
                CHECK((at[6] == 7 && at[7] == 0 && at[8] == 0));
            }
        }
        CHECK(keep.in_use_bytes() == 0);
        check_cuda(cudaFree(p), "cudaFree");
    });
}

TEST_CASE_TEMPLATE("saved_contents: a suspended pool holds nothing, and its blocks come back at their addresses", Reuse,
                   weir::reuse::stream_ordered<>, weir::reuse::after_event, weir::reuse::immediate) {
    support::every_schedule([] {
        support::scoped_stream const s;
        pool_over<Reuse> pool;
        block const a = take(pool, s, 5 * MiB, 1);
        block const b = take(pool, s, 300, 2);
        block const c = take(pool, s, 9 * MiB, 3);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        std::size_t const held = pool.reserved_bytes();
        CHECK_FALSE(pool.suspended());
        CHECK(pool.suspend() == held);
        CHECK(pool.suspended());
        CHECK(pool.reserved_bytes() == 0);
        CHECK(says(pool.report(), "suspended"));
        CHECK(pool.try_allocate(s, 256) == nullptr);
        CHECK(says(pool.refused(256, 256).reason, "the pool is suspended; call 'resume' first"));
        CHECK_THROWS_AS(static_cast<void>(pool.allocate(s, 256)), weir::out_of_memory);
        CHECK(pool.trim() == 0);
        pool.deallocate(s, b.p, b.bytes); // bookkeeping only
        pool.resume();
        CHECK_FALSE(pool.suspended());
        CHECK_FALSE(says(pool.report(), "suspended"));
        CHECK(pool.reserved_bytes() == held);
        for (block const& each : {a, c}) {
            check_cuda(cudaMemsetAsync(each.p, 9, each.bytes, s), "cudaMemsetAsync");
            CHECK(pool.owns(each.p));
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        for (block const& each : {a, c})
            pool.deallocate(s, each.p, each.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
        pool.resume(); // without 'suspend': nothing
    });
}

TEST_CASE_TEMPLATE("saved_contents: what blocks hold is kept in pinned or in ordinary memory", Keep, weir::pinned_pool,
                   weir::host_pool) {
    support::every_schedule([] {
        support::scoped_stream const s, t;
        Keep keep;
        mapped_pool pool;
        std::vector<block> blocks;
        for (int i = 0; i < 40; ++i)
            blocks.push_back(take(pool, i % 2 == 0 ? s : t, i % 3 == 0 ? 3 * MiB : 40 * KiB, static_cast<unsigned char>(i)));
        for (std::size_t i = 0; i < 40; i += 4) // half of the large ones: holes between the others, some in flight
            pool.deallocate(s, blocks[i].p, blocks[i].bytes);
        std::size_t live = 0;
        for (std::size_t i = 0; i < 40; ++i)
            live += i % 4 == 0 ? 0 : blocks[i].bytes;
        for (int round = 0; round < 2; ++round) {
            pool.suspend(keep); // waits for the work under way
            CHECK(pool.reserved_bytes() == 0);
            CHECK(keep.in_use_bytes() >= live);
            CHECK(keep.in_use_bytes() <= live + 12 * MiB); // what small blocks are cut from is saved whole
            pool.resume();
            CHECK(keep.in_use_bytes() == 0);
            for (std::size_t i = 0; i < 40; ++i)
                if (i % 4 != 0)
                    CHECK(is_whole(blocks[i]));
        }
        for (std::size_t i = 0; i < 40; ++i)
            if (i % 4 != 0)
                pool.deallocate(t, blocks[i].p, blocks[i].bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        check_cuda(cudaStreamSynchronize(t), "cudaStreamSynchronize");
    });
}

TEST_CASE_TEMPLATE("saved_contents: a fresh pool gets no more memory than is saved", Keep, weir::pinned_pool, weir::host_pool) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    struct row {
        std::size_t bytes, count;
    };
    for (row const& of : {row{2 * MiB, 1}, row{40 * MiB, 1}, row{6 * MiB, 30}, row{1 * MiB, 300}, row{100 * MiB, 3}}) {
        CAPTURE(of.bytes);
        support::scoped_stream const s;
        Keep keep;
        mapped_pool pool;
        std::vector<block> live, freed;
        for (std::size_t i = 0; i < 2 * of.count; ++i) // each block lies between two that are free
            (i % 2 == 0 ? live : freed).push_back(take(pool, s, of.bytes, static_cast<unsigned char>(i)));
        for (block const& each : freed)
            pool.deallocate(s, each.p, each.bytes);
        pool.suspend(keep);
        std::size_t const saved = of.bytes * of.count;
        CHECK(keep.in_use_bytes() == saved);
        CHECK(keep.reserved_bytes() < saved + 64 * KiB); // a page
        pool.resume();
        for (block const& each : live) {
            CHECK(is_whole(each));
            pool.deallocate(s, each.p, each.bytes);
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
}

TEST_CASE("saved_contents: a pool whose free memory lies in pieces keeps what fits into them, and refuses what does not") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    support::scoped_stream const s;
    weir::host_pool keep(weir::pool_options{}.limit(64 * MiB));
    keep.reserve(64 * MiB);
    void* parts[8] = {};
    for (void*& each : parts)
        each = keep.allocate_sync(8 * MiB);
    for (int i = 0; i < 8; i += 2)
        keep.deallocate_sync(parts[i], 8 * MiB);
    mapped_pool pool;
    block const a = take(pool, s, 30 * MiB, 5);
    block const b = take(pool, s, 4 * MiB, 6);
    CHECK_THROWS_AS(pool.suspend(keep), weir::out_of_memory);
    CHECK_FALSE(pool.suspended());
    CHECK(keep.in_use_bytes() == 32 * MiB);
    pool.deallocate(s, b.p, b.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    pool.suspend(keep);
    pool.resume();
    CHECK(is_whole(a));
    pool.deallocate(s, a.p, a.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    for (int i = 1; i < 8; i += 2)
        keep.deallocate_sync(parts[i], 8 * MiB);
}

TEST_CASE("saved_contents: a graph that was captured before works after") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::host_pool keep;
        mapped_pool pool;
        block const a = take(pool, s, 4 * MiB, 1);
        block b = take(pool, s, 4 * MiB, 2);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t launchable = nullptr;
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        check_cuda(cudaMemcpyAsync(b.p, a.p, a.bytes, cudaMemcpyDeviceToDevice, s), "cudaMemcpyAsync");
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
        pool.suspend(keep);
        pool.resume();
        CHECK(is_whole(b));
        check_cuda(cudaGraphLaunch(launchable, s), "cudaGraphLaunch");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        b.value = a.value;
        CHECK(is_whole(b));
        check_cuda(cudaGraphExecDestroy(launchable), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        pool.deallocate(s, a.p, a.bytes);
        pool.deallocate(s, b.p, b.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

TEST_CASE("saved_contents: suspending breaks no capture of another stream") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        weir::pinned_pool keep;
        mapped_pool pool;
        block const a = take(pool, s, 4 * MiB, 1);
        support::capture alien(other);
        pool.suspend(keep);
        pool.resume();
        CHECK(alien.unbroken());
        CHECK(is_whole(a));
        pool.deallocate(s, a.p, a.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

namespace {
// A pool for contents that asks the suspended pool for a block whenever it is asked for one itself.
template <class Suspended>
class curious_keep : public weir::resource::pool_base<curious_keep<Suspended>> {
public:
    static constexpr std::size_t default_alignment = 256;
    static constexpr weir::memory_space space = weir::memory_space::host;

    curious_keep(Suspended& asked, cudaStream_t stream) : asked_(asked), stream_(stream) {}
    void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) {
        ++asks;
        for (std::size_t each : {512 * KiB, 64 * MiB}) // for the second it would have to grow
            found = found || asked_.try_allocate(stream_, each); // once it does, growing waits for the call that asks
        return keep_.try_allocate(stream, bytes, alignment);
    }
    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
        keep_.deallocate(stream, p, bytes, alignment);
    }
    weir::memory_report state() const { return keep_.state(); }
    weir::refusal refused(std::size_t bytes, std::size_t alignment) const { return keep_.refused(bytes, alignment); }
    int asks = 0;
    bool found = false;

private:
    Suspended& asked_;
    cudaStream_t stream_;
    weir::host_pool keep_;
};
} // namespace

TEST_CASE("saved_contents: a pool hands nothing out from the moment when it begins to be suspended") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool;
        block const a = take(pool, s, 5 * MiB, 1);
        block const b = take(pool, s, 1 * MiB, 2);
        pool.deallocate(s, b.p, b.bytes); // there is a block to find
        curious_keep<mapped_pool> keep(pool, s);
        std::size_t const in_use = pool.in_use_bytes();
        pool.suspend(keep);
        std::size_t const in_use_then = pool.in_use_bytes();
        std::size_t const reserved_then = pool.reserved_bytes();
        pool.resume(); // before anything that may end the test: 'keep' ends first
        CHECK(keep.asks > 0);
        CHECK_FALSE(keep.found);
        CHECK(in_use_then == in_use);
        CHECK(reserved_then == 0);
        CHECK(is_whole(a));
        pool.deallocate(s, a.p, a.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

TEST_CASE("saved_contents: layers pass it on") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::host_pool keep;
        weir::layer::limit<weir::layer::statistics<weir::device_pool>> pool(64 * MiB);
        block const a = take(pool, s, 4 * MiB, 5);
        pool.suspend();
        CHECK(pool.suspended());
        pool.resume();
        check_cuda(cudaMemset(a.p, a.value, a.bytes), "cudaMemset");
        pool.suspend(keep);
        pool.resume();
        CHECK(is_whole(a));
        pool.deallocate(s, a.p, a.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    });
}

namespace {

// The pages of 2 MiB in which these blocks lie, in bytes.
std::size_t pages_of(std::vector<block> const& blocks) {
    std::set<std::uintptr_t> touched;
    for (block const& each : blocks)
        for (auto at = reinterpret_cast<std::uintptr_t>(each.p) / (2 * MiB);
             at <= (reinterpret_cast<std::uintptr_t>(each.p) + each.bytes - 1) / (2 * MiB); ++at)
            touched.insert(at);
    return touched.size() * 2 * MiB;
}

// Blocks of 512 KiB, which share no slab, in 512 MiB; one of a hundred stays.
std::vector<block> one_of_a_hundred(weir::device_pool& pool, cudaStream_t s, unsigned seed) {
    std::mt19937 draw(seed);
    std::vector<block> all, live;
    for (int i = 0; i < 1024; ++i)
        all.push_back(take(pool, s, 512 * KiB, static_cast<unsigned char>(i)));
    for (block const& each : all)
        if (draw() % 100 == 0)
            live.push_back(each);
        else
            pool.deallocate(s, each.p, each.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    pool.settle();
    return live;
}

void give_all(weir::device_pool& pool, cudaStream_t s, std::vector<block>& blocks) {
    for (block const& each : blocks) {
        CHECK(is_whole(each));
        pool.deallocate(s, each.p, each.bytes);
    }
    blocks.clear();
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    pool.settle();
}

} // namespace

TEST_CASE("saved_contents: trimmed while it is suspended, a pool comes back with the pages of its blocks alone") {
    for (unsigned seed = 1; seed < 6; ++seed) {
        CAPTURE(seed);
        support::scoped_stream const s;
        weir::pinned_pool keep;
        weir::device_pool pool;
        std::vector<block> live = one_of_a_hundred(pool, s, seed);
        REQUIRE_FALSE(live.empty());
        std::size_t const needed = pages_of(live);
        pool.trim();
        std::size_t const held = pool.reserved_bytes();
        CHECK(held > needed); // chunks go back as a whole

        for (std::size_t const kept : {held, held - 4 * MiB, std::size_t{0}}) {
            pool.suspend(keep);
            CHECK(pool.trim(kept) == 0); // it has nothing to give
            pool.resume();
            CHECK(pool.reserved_bytes() == (kept > needed ? kept : needed));
        }
        CHECK(pool.reserved_bytes() == needed);
        for (block const& each : live)
            CHECK((is_whole(each) && pool.owns(each.p)));

        // What went back can be had again, at the same addresses, beside what stayed.
        for (int i = 0; i < 900; ++i)
            live.push_back(take(pool, s, 512 * KiB, static_cast<unsigned char>(i)));
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        auto const [first, last] = std::minmax_element(live.begin(), live.end(), [](block a, block b) { return a.p < b.p; });
        CHECK(static_cast<std::size_t>(static_cast<char*>(last->p) - static_cast<char*>(first->p)) < 600 * MiB);
        give_all(pool, s, live);
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    }
}

TEST_CASE("saved_contents: what was saved of blocks that were freed meanwhile, and trimmed, is not copied back") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::pinned_pool keep;
        weir::device_pool pool;
        std::vector<block> live;
        for (unsigned char i = 0; i < 9; ++i)
            live.push_back(take(pool, s, 3 * MiB, i));
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.suspend(keep);
        for (std::size_t i : {7u, 5u, 4u, 1u, 0u}) {
            pool.deallocate(s, live[i].p, live[i].bytes);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        }
        pool.settle();
        pool.trim();
        pool.resume();
        CHECK(pool.reserved_bytes() == pages_of(live));
        give_all(pool, s, live);
        CHECK(keep.in_use_bytes() == 0);
    });
}

TEST_CASE("saved_contents: a suspended pool without blocks is trimmed to nothing, and may end so") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool pool;
        block const a = take(pool, s, 20 * MiB, 1);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.suspend();
        pool.deallocate(s, a.p, a.bytes);
        pool.settle();
        CHECK(pool.owns(a.p));
        pool.trim();
        CHECK_FALSE(pool.owns(a.p));
        pool.resume();
        CHECK(pool.reserved_bytes() == 0);
        block const b = take(pool, s, 30 * MiB, 2);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(is_whole(b));
        pool.deallocate(s, b.p, b.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.suspend();
        pool.trim();
    });
}

TEST_CASE("saved_contents: blocks come, go and keep their bytes, whatever the order") {
    for (unsigned seed = 1; seed < 20; ++seed) {
        CAPTURE(seed);
        support::scoped_stream const s;
        weir::host_pool keep;
        weir::device_pool pool;
        std::mt19937 draw(seed);
        std::vector<block> blocks;
        for (int step = 0; step < 60; ++step) {
            if (blocks.empty() || draw() % 3 != 0) {
                std::size_t const bytes = std::size_t{1} << (draw() % 23);
                blocks.push_back(take(pool, s, bytes, static_cast<unsigned char>(draw())));
            } else {
                std::size_t const which = draw() % blocks.size();
                pool.deallocate(s, blocks[which].p, blocks[which].bytes);
                blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
            }
            if (draw() % 10 == 0) {
                pool.suspend(keep);
                REQUIRE(pool.reserved_bytes() == 0);
                if (!blocks.empty() && draw() % 2 == 0) {
                    pool.deallocate(s, blocks.back().p, blocks.back().bytes);
                    blocks.pop_back();
                }
                if (draw() % 2 == 0)
                    pool.trim(draw() % 2 * 8 * MiB);
                pool.resume();
            }
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        for (block const& each : blocks) {
            REQUIRE(is_whole(each));
            pool.deallocate(s, each.p, each.bytes);
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("saved_contents: what cannot be done is refused, and the pool is as it was") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(256 * MiB));
    support::scoped_stream const s;
    weir::host_pool keep(weir::pool_options{}.limit(8 * MiB));
    mapped_pool pool;
    block const a = take(pool, s, 200 * MiB, 4);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    CHECK_THROWS_AS(pool.suspend(keep), weir::out_of_memory); // 'keep' has no room
    CHECK_FALSE(pool.suspended());
    CHECK(keep.in_use_bytes() == 0);
    CHECK(is_whole(a));

    weir::host_pool large;
    pool.suspend(large);
    CHECK_THROWS_WITH_AS(pool.suspend(large), doctest::Contains("is suspended already; call 'resume' first"),
                         weir::usage_error);
    void* others = nullptr;
    check_cuda(cudaMalloc(&others, 100 * MiB), "cudaMalloc");
    CHECK_THROWS_AS(pool.resume(), weir::out_of_memory); // another program has the card
    CHECK(pool.suspended());
    CHECK(pool.reserved_bytes() == 0);
    check_cuda(cudaFree(others), "cudaFree");
    pool.resume();
    CHECK(is_whole(a));
    pool.deallocate(s, a.p, a.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

TEST_CASE("saved_contents: where a device cannot map memory, a pool keeps it and says so") {
    simulated_cuda::world const world(simulated_cuda::config{}.without_virtual_memory());
    support::scoped_stream const s;
    mapped_pool pool(weir::pool_options{}.name("old"));
    block const a = take(pool, s, 1 * MiB, 1);
    CHECK_THROWS_WITH_AS(pool.suspend(), doctest::Contains("cannot map memory, so pool 'old' cannot be suspended"),
                         weir::usage_error);
    CHECK_FALSE(pool.suspended());
    pool.deallocate(s, a.p, a.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

TEST_CASE("saved_contents: a pool may end suspended") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pinned_pool keep;
    {
        mapped_pool pool;
        block const a = take(pool, s, 10 * MiB, 1);
        pool.suspend(keep);
        pool.deallocate(s, a.p, a.bytes);
    }
    CHECK(keep.in_use_bytes() == 0);
    keep.trim();
}

namespace {
struct scene {
    support::scoped_stream s;
    weir::host_pool keep;
    weir::device_pool pool; // b shares its chunks
    block a = take(pool, s, 7 * MiB, 1);
    block b = take(pool, s, 5 * MiB, 2);
    block c = take(pool, s, 3 * MiB, 3);
    scene() {
        pool.deallocate(s, b.p, b.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
};

// After faults: whether suspended or not, the pool comes back whole and nothing is lost.
void judge(scene& x, support::struck const& fault) {
    if (fault.for_ever)
        return;
    x.pool.resume();
    CHECK(is_whole(x.a));
    CHECK(is_whole(x.c));
    CHECK(x.keep.in_use_bytes() == 0);
    x.pool.deallocate(x.s, x.a.p, x.a.bytes);
    x.pool.deallocate(x.s, x.c.p, x.c.bytes);
    x.pool.settle();
    x.pool.trim();
    CHECK(x.pool.reserved_bytes() == 0);
}
} // namespace

TEST_CASE("saved_contents: whatever call of 'suspend' fails, no byte is lost") {
    auto const runs = support::fault_sweep([] { return std::make_unique<scene>(); },
                                           [](scene& x) {
                                               bool const was = x.pool.suspended();
                                               try {
                                                   x.pool.suspend(x.keep);
                                               } catch (...) {
                                                   CHECK(x.pool.suspended() == was);
                                                   throw;
                                               }
                                           },
                                           judge, support::faults::pairs_too);
    CHECK(runs >= 20);
}

TEST_CASE("saved_contents: whatever call of 'resume' fails, the pool stays suspended and no byte is lost") {
    bool trims = false;
    auto const prepared = [&] {
        auto x = std::make_unique<scene>();
        x->pool.suspend(x->keep);
        if (trims)
            x->pool.trim();
        return x;
    };
    auto const attempt = [](scene& x) {
        try {
            x.pool.resume();
        } catch (weir::out_of_memory const&) { // what a device without room is told as
            CHECK(x.pool.suspended());
        } catch (...) {
            CHECK(x.pool.suspended());
            throw;
        }
    };
    for (bool const each : {false, true}) {
        trims = each;
        CHECK(support::fault_sweep(prepared, attempt, judge, support::faults::pairs_too) >= 20);
    }
}

TEST_CASE("saved_contents: blocks that a copy may still write stay out where CUDA does not tell that it is over") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    weir::pinned_pool keep(weir::pool_options{}.on_leak(weir::leak_action::ignore));
    void* p = nullptr;
    check_cuda(cudaMalloc(&p, 1 * MiB), "cudaMalloc");
    {
        weir::supply::saved_contents saved(keep, 0);
        saved.add(weir::base::range{reinterpret_cast<std::uintptr_t>(p), 1 * MiB});
        saved.save();
        for (char const* const call : {"cudaStreamSynchronize", "cudaGetDeviceCount"}) // the device cannot be waited for either
            simulated_cuda::fail_call(call, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
        CHECK_FALSE(saved.idle());
    }
    simulated_cuda::clear_faults();
    CHECK(simulated_cuda::pending() == 1);
    CHECK(keep.in_use_bytes() == 1 * MiB);
    check_cuda(cudaFree(p), "cudaFree");
}

TEST_CASE("saved_contents: where a wait for the copies fails once, they are waited for again, and no other work is") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const other;
    weir::pinned_pool keep;
    void* p = nullptr;
    check_cuda(cudaMalloc(&p, 2 * MiB), "cudaMalloc");
    check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, other), "cudaMemsetAsync");
    {
        weir::supply::saved_contents saved(keep, 0);
        saved.add(weir::base::range{reinterpret_cast<std::uintptr_t>(p) + 1 * MiB, 1 * MiB});
        saved.save();
        CHECK(simulated_cuda::pending() == 2);
        simulated_cuda::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
        CHECK(saved.idle());
        CHECK(simulated_cuda::pending() == 1);
    }
    check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    check_cuda(cudaFree(p), "cudaFree");
}

TEST_CASE("saved_contents: the stream of its copies does not stay where CUDA refuses once to destroy it") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    weir::host_pool keep;
    {
        weir::supply::saved_contents const saved(keep, 0);
        simulated_cuda::fail_call("cudaStreamDestroy", 1, cudaErrorUnknown);
    }
    CHECK(simulated_cuda::failed_calls() == 1);
}

TEST_CASE("saved_contents: a pool is suspended and comes back, whichever device is current") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2), support::report_all);
    support::scoped_stream const s;
    weir::host_pool keep;
    mapped_pool pool;
    block const a = take(pool, s, 4 * MiB, 3);
    {
        weir::runtime::device_scope const there(1);
        pool.suspend(keep);
        pool.resume();
        CHECK(weir::runtime::current_device() == 1);
    }
    CHECK(is_whole(a));
    pool.deallocate(s, a.p, a.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

TEST_CASE("saved_contents: a save for whose list the host has no memory takes no block") {
    if (!support::host_memory_can_fail)
        return;
    simulated_cuda::world const world;
    weir::host_pool keep;
    keep.deallocate_sync(keep.allocate_sync(1 * MiB), 1 * MiB); // now it has a block at hand
    for (long const allocations : {0, 1}) { // of the list of what is to be saved, and of that of blocks
        weir::supply::saved_contents saved(keep, 0);
        bool refused = false;
        try {
            support::failing_new const none(allocations);
            saved.add(weir::base::range{1 * MiB, 1 * MiB}); // numbers: it does not come to a copy
            saved.save();
        } catch (std::bad_alloc const&) {
            refused = true;
        }
        CHECK(refused);
        CHECK(keep.in_use_bytes() == 0);
    }
}

TEST_CASE("saved_contents: a trim takes nothing away while copies of 'resume' may be under way") {
    simulated_cuda::world const world(simulated_cuda::config{}.late());
    support::scoped_stream const s;
    weir::pinned_pool keep;
    pool_over<weir::reuse::immediate> pool;
    block const a = take(pool, s, 20 * MiB, 1);
    block const b = take(pool, s, 20 * MiB, 2);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    pool.suspend(keep);
    for (char const* const call : {"cudaStreamSynchronize", "cudaGetDeviceCount"}) // the device cannot be waited for either
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK_THROWS_AS(pool.resume(), weir::cuda_error);
    simulated_cuda::clear_faults();
    CHECK(pool.suspended());
    pool.deallocate(s, a.p, a.bytes);
    CHECK(pool.trim() == 0);
    CHECK(simulated_cuda::reports().empty());
    pool.resume();
    CHECK(is_whole(b));
    pool.deallocate(s, b.p, b.bytes);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

TEST_CASE("saved_contents: what lies between free ranges is saved, whichever of them is the larger") {
    for (bool const larger_first : {false, true}) {
        CAPTURE(larger_first);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        weir::host_pool keep;
        weir::pool<weir::upstream::virtual_memory<>, weir::recipes::general_placement, weir::reuse::immediate,
                   support::paged_of<1, 64 * MiB, 64 * MiB>> pool; // one chunk
        std::size_t const large = 30 * MiB, small = 6 * MiB;
        block const first = take(pool, s, larger_first ? large : small, 1), live = take(pool, s, 4 * MiB, 2);
        block const second = take(pool, s, larger_first ? small : large, 3), last = take(pool, s, 4 * MiB, 4);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.deallocate(s, first.p, first.bytes);
        pool.deallocate(s, second.p, second.bytes);
        pool.suspend(keep);
        CHECK(keep.in_use_bytes() < 12 * MiB); // what is free is not saved
        pool.resume();
        CHECK(is_whole(live));
        CHECK(is_whole(last));
        pool.deallocate(s, live.p, live.bytes);
        pool.deallocate(s, last.p, last.bytes);
    }
}

TEST_CASE("saved_contents: a pool is not suspended in the middle of another thread's growth") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        simulated_cuda::world const world(simulated_cuda::config{}.random(seed), support::report_all);
        support::scoped_stream const s;
        mapped_pool pool;
        void* p = nullptr;
        simulated_cuda::run_threads({[&] { p = pool.try_allocate(s, 20 * MiB); }, [&] { pool.suspend(); }});
        CHECK(pool.reserved_bytes() == 0); // nothing was got behind its back
        pool.resume();
        if (p)
            check_cuda(cudaMemsetAsync(p, 1, 20 * MiB, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.deallocate(s, p, 20 * MiB);
    }
}

TEST_CASE("saved_contents: no block lies across two reservations, also after a trim that could not cut") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::host_pool keep;
    weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::immediate,
               support::paged_of<512, 8 * MiB, 64 * MiB>> pool;
    // Just the addresses that are needed: more are refused so often.
    auto const scarce = [&](std::size_t bytes, unsigned char value, std::uint64_t refusals) {
        for (std::uint64_t tries = 1; tries <= refusals; ++tries)
            simulated_cuda::fail_call("cuMemAddressReserve", tries, cudaErrorMemoryAllocation);
        block const fresh = take(pool, s, bytes, value);
        simulated_cuda::clear_faults();
        return fresh;
    };
    block const a = scarce(7 * MiB, 1, 3);
    block const b = scarce(8 * MiB, 2, 2);
    auto const border = reinterpret_cast<std::uintptr_t>(b.p);
    REQUIRE(border == reinterpret_cast<std::uintptr_t>(a.p) + 8 * MiB);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    simulated_cuda::fail_call("cuMemUnmap", 2, cudaErrorUnknown); // b's chunk stays
    pool.suspend(keep);
    pool.deallocate(s, b.p, b.bytes);
    CHECK(pool.trim() == 0);
    pool.resume();
    block const c = take(pool, s, 8 * MiB + 512 * KiB, 3);
    auto const start = reinterpret_cast<std::uintptr_t>(c.p);
    CHECK((start >= border || start + c.bytes <= border));
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    CHECK((is_whole(a) && is_whole(c)));
    pool.deallocate(s, a.p, a.bytes);
    pool.deallocate(s, c.p, c.bytes);
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE("saved_contents: a chunk that 'resume' left mapped is not cut before CUDA takes the memory away") {
    for (std::uint64_t refusals : {1u, 2u}) {
        CAPTURE(refusals);
        simulated_cuda::world const world;
        support::scoped_stream const s;
        weir::host_pool keep;
        weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::immediate,
                   support::paged_of<512, 16 * MiB, 64 * MiB>> pool;
        block const a = take(pool, s, 5 * MiB, 1);
        block const b = take(pool, s, 5 * MiB, 2);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        pool.suspend(keep);
        simulated_cuda::fail_call("cuMemSetAccess", 1, cudaErrorUnknown);
        for (std::uint64_t each = 0; each < refusals; ++each)
            simulated_cuda::fail_call("cuMemUnmap", 2 + each, cudaErrorUnknown);
        CHECK_THROWS_AS(pool.resume(), weir::cuda_error);
        pool.deallocate(s, b.p, b.bytes);
        pool.trim();
        simulated_cuda::clear_faults();
        pool.resume();
        CHECK(is_whole(a));
        CHECK(pool.reserved_bytes() == (refusals == 1 ? 6 * MiB : 16 * MiB));
        pool.deallocate(s, a.p, a.bytes);
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    }
}

TEST_CASE("saved_contents: a save that fails is over before the pool goes on, also where its stream cannot be waited for") {
    for (auto const how : {simulated_cuda::lasting::once, simulated_cuda::lasting::for_ever}) {
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        weir::pinned_pool keep;
        mapped_pool pool;
        block const a = take(pool, s, 4 * MiB, 1);
        {
            simulated_cuda::housekeeping const own;
            simulated_cuda::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown, how);
            CHECK_THROWS_AS(pool.suspend(keep), weir::cuda_error);
            simulated_cuda::clear_faults();
        }
        CHECK(keep.in_use_bytes() == 0);
        CHECK(is_whole(a));
        pool.deallocate(s, a.p, a.bytes);
        pool.settle();
        CHECK(pool.trim() >= 4 * MiB); // unmaps what was copied
    }
}

TEST_CASE("saved_contents: however many ranges are free, a trim for which the host has no memory loses no page") {
    for (int pairs = 4; support::host_memory_can_fail && pairs < 20; ++pairs)
        for (long failures = 0; failures < 12; ++failures) {
            CAPTURE(pairs);
            CAPTURE(failures);
            simulated_cuda::world const world;
            support::scoped_stream const s;
            mapped_pool pool;
            auto const untouched = [&](std::size_t bytes) { return block{pool.allocate(s, bytes), bytes}; };
            std::vector<block> live{untouched(512 * KiB)}, others;
            for (int i = 0; i < 2 * pairs; ++i)
                (i % 2 == 0 ? others : live).push_back(untouched(5 * MiB));
            pool.suspend();
            for (block const& each : others)
                pool.deallocate(s, each.p, each.bytes);
            pool.settle();
            try {
                support::failing_new const fails(failures);
                pool.trim();
            } catch (std::bad_alloc const&) {
            }
            pool.trim();
            pool.resume();
            CHECK(pool.reserved_bytes() == pages_of(live));
            for (block const& each : live)
                pool.deallocate(s, each.p, each.bytes);
            pool.settle();
            pool.trim();
            CHECK(pool.reserved_bytes() == 0);
        }
}

TEST_CASE("saved_contents: whatever call fails, and whatever host memory is left, a suspended pool is trimmed or is as it was") {
    auto const suspended = [] {
        auto x = std::make_unique<scene>();
        x->pool.suspend(x->keep);
        return x;
    };
    support::fault_sweep(suspended, [](scene& x) { x.pool.trim(); }, judge, support::faults::pairs_too);
    for (long failures = 0; support::host_memory_can_fail && failures < 40; ++failures) {
        CAPTURE(failures);
        simulated_cuda::world const world;
        auto const x = suspended();
        try {
            support::failing_new const fails(failures);
            x->pool.trim();
        } catch (std::bad_alloc const&) {
        }
        judge(*x, support::struck{});
    }
}
#endif
