// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How pools grow and give back; through pools, since that is all that a supply is for. What holds for every pool is in
// tests/contract/pool.cpp, chunks of their own are in tests/pool/pool.cpp; here is growth in place.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <string>
#include <support/growth_numbers.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::check_cuda;
using weir::KiB;
using weir::MiB;
namespace growth = weir::growth;
namespace placement = weir::placement;
namespace reuse = weir::reuse;

namespace {

using virtual_memory = weir::upstream::virtual_memory<>;
using general = placement::by_size<64 * KiB, placement::bins<>, placement::best_fit<>>;
using pages = support::paged_of<512, 2 * MiB, 64 * MiB>;
using eighths = support::paged_of<8, 2 * MiB, 64 * MiB>;
using mapped_pool = weir::pool<virtual_memory, general, reuse::stream_ordered<>, pages>;

struct block {
    void* p = nullptr;
    std::size_t bytes = 0;
};

template <class Pool>
block take(Pool& pool, cudaStream_t s, std::size_t bytes) {
    return block{pool.try_allocate(s, bytes), bytes};
}
template <class Pool>
void give(Pool& pool, cudaStream_t s, block b) {
    pool.deallocate(s, b.p, b.bytes);
}

// So many blocks of a page, of which every second one, from the first on, is free again.
template <class Pool>
std::vector<block> half_freed(Pool& pool, cudaStream_t s, int count) {
    std::vector<block> blocks;
    for (int i = 0; i < count; ++i)
        blocks.push_back(take(pool, s, 2 * MiB));
    for (std::size_t i = 0; i < blocks.size(); i += 2)
        give(pool, s, std::exchange(blocks[i], block{}));
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    return blocks;
}

// What is left of them goes back.
template <class Pool>
void give_all(Pool& pool, cudaStream_t s, std::vector<block> const& blocks) {
    for (block const& each : blocks)
        if (each.p)
            give(pool, s, each);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

// An upstream whose chunks start 256 bytes behind a page.
struct beside_pages {
    static constexpr std::size_t alignment = 256;
    static constexpr std::size_t granularity = 2 * MiB;
    static constexpr weir::memory_space space = weir::memory_space::host;

    void* acquire(std::size_t bytes) {
        ++*chunks;
        return static_cast<char*>(::operator new (bytes + alignment, std::align_val_t{granularity})) + alignment;
    }
    void release(void* p, std::size_t) noexcept {
        ::operator delete (static_cast<char*>(p) - alignment, std::align_val_t{granularity});
    }
    int* chunks = nullptr; // that were asked for
};

void touch(cudaStream_t s, block b) {
    check_cuda(cudaMemsetAsync(b.p, 1, b.bytes, s), "cudaMemsetAsync");
}

void drain(cudaStream_t s) {
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
}

} // namespace

TEST_CASE_TEMPLATE("chunk_supply: a block takes the free bytes before the end, and only what it lacks is got", Rule,
                   reuse::stream_ordered<>, reuse::after_event, reuse::immediate) {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::pool<virtual_memory, general, Rule, pages> pool;
        block const first = take(pool, s, 10 * MiB);
        CHECK(pool.reserved_bytes() == 10 * MiB);
        give(pool, s, first);
        drain(s);
        block const larger = take(pool, s, 15 * MiB);
        CHECK(larger.p == first.p);
        CHECK(pool.reserved_bytes() == 16 * MiB);
        touch(s, larger);
        block const small = take(pool, s, 300 * KiB); // out of the MiB that is left
        CHECK(small.p == static_cast<char*>(larger.p) + 15 * MiB);
        give(pool, s, larger);
        give(pool, s, small);
        drain(s);
    });
}

TEST_CASE("chunk_supply: what lies free elsewhere moves to the end") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool;
        block const a = take(pool, s, 20 * MiB);
        block const b = take(pool, s, 20 * MiB);
        block const c = take(pool, s, 20 * MiB);
        for (block const& each : {a, b, c})
            touch(s, each);
        give(pool, s, b);
        drain(s);
        block const d = take(pool, s, 30 * MiB); // no room at b: its pages move, and 10 MiB come
        CHECK(pool.reserved_bytes() >= 70 * MiB);
        CHECK(pool.reserved_bytes() <= 72 * MiB);
        CHECK(d.p == static_cast<char*>(c.p) + 20 * MiB);
        touch(s, d);
        // The hole is filled again where a block fits there, and just as far.
        block const e = take(pool, s, 19 * MiB);
        CHECK(e.p == b.p);
        CHECK(pool.reserved_bytes() <= 92 * MiB);
        touch(s, e);
        for (block const& each : {a, c, d, e})
            give(pool, s, each);
        drain(s);
    });
}

TEST_CASE("chunk_supply: free bytes on both sides of a hole count, and the hole is filled") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool(weir::pool_options{}.limit(64 * MiB));
        std::vector<block> blocks;
        for (int i = 0; i < 6; ++i)
            blocks.push_back(take(pool, s, 8 * MiB)); // 0 to 48
        give(pool, s, blocks[2]);
        drain(s);
        block const end = take(pool, s, 16 * MiB); // 48 to 64; the pages of block 2 move there
        CHECK(pool.reserved_bytes() <= 58 * MiB);
        give(pool, s, blocks[1]);
        give(pool, s, blocks[3]);
        drain(s);
        block const wide = take(pool, s, 24 * MiB); // before the hole, the hole, behind it
        CHECK(wide.p == blocks[1].p);
        CHECK(pool.reserved_bytes() == 64 * MiB);
        touch(s, wide);
        for (block const& each : {blocks[0], blocks[4], blocks[5], end, wide})
            give(pool, s, each);
        drain(s);
    });
}

TEST_CASE("chunk_supply: bytes that work still uses stay where they are") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late()); // nothing runs until it must
    support::scoped_stream const s, t;
    mapped_pool pool;
    block const a = take(pool, s, 20 * MiB);
    touch(s, a);
    block const b = take(pool, t, 4 * MiB);
    give(pool, s, a);
    block const c = take(pool, t, 30 * MiB); // a's pages are free, and in use
    CHECK(pool.reserved_bytes() == 54 * MiB);
    touch(t, c);
    drain(s);
    block const d = take(pool, t, 30 * MiB);
    CHECK(pool.reserved_bytes() <= 66 * MiB);
    touch(t, d);
    for (block const& each : {b, c, d})
        give(pool, t, each);
    drain(t);
#endif
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE_TEMPLATE("chunk_supply: a rule that looks at no work waits before memory is unmapped, whatever the placement", Placement,
                   placement::best_fit<>, placement::arena, placement::slab<MiB>, placement::bins<>) {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s;
    for (bool const trims : {true, false}) {
        CAPTURE(trims);
        {
            weir::pool<virtual_memory, Placement, reuse::immediate, growth::geometric<>> pool;
            CHECK(pool.trim() == 0);
            block const b = take(pool, s, MiB / 2);
            touch(s, b);
            give(pool, s, b);
            if constexpr (std::is_same_v<Placement, placement::arena>)
                pool.clear();
            CHECK(simulated_cuda::pending() == 1);
            if (trims)
                CHECK(pool.trim() != 0);
        }
        CHECK(simulated_cuda::pending() == 0);
    }
}

TEST_CASE("chunk_supply: a rule that looks at no work waits for a copy by peers on another device's stream") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const s;
    weir::pool<virtual_memory, placement::best_fit<>, reuse::immediate> pool;
    block const b = take(pool, s, 2 * MiB);
    touch(s, b);
    check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    support::scoped_stream const far;
    void* there = nullptr;
    check_cuda(cudaMalloc(&there, 2 * MiB), "cudaMalloc");
    check_cuda(cudaMemcpyPeerAsync(there, 1, b.p, 0, 2 * MiB, far), "cudaMemcpyPeerAsync");
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    give(pool, far, b);
    CHECK(simulated_cuda::pending() == 1);
    CHECK(pool.trim() != 0);
    CHECK(simulated_cuda::pending() == 0);
    check_cuda(cudaFree(there), "cudaFree");
}

TEST_CASE("chunk_supply: a rule that looks at no work waits for it before its bytes lose their memory") {
    using trusting_pool = weir::pool<virtual_memory, placement::best_fit<>, reuse::immediate, growth::by_holes<>>;
    enum way { growth_moves, trim_gives_back, the_end };
    for (way const by : {growth_moves, trim_gives_back, the_end}) {
        CAPTURE(by);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const s;
        {
            trusting_pool pool;
            std::vector<block> blocks;
            for (int i = 0; i < 6; ++i) {
                blocks.push_back(take(pool, s, 8 * MiB));
                touch(s, blocks.back());
            }
            for (std::size_t i : {0u, 2u, 4u})
                give(pool, s, blocks[i]); // behind its work, on the one stream that there is
            if (by == growth_moves) {
                block const large = take(pool, s, 24 * MiB);
                CHECK(large.p != nullptr);
                touch(s, large);
                CHECK(simulated_cuda::pending() == 1);
                give(pool, s, large);
            } else if (by == trim_gives_back) {
                CHECK(pool.trim() != 0);
                CHECK(simulated_cuda::pending() == 0);
            }
            for (std::size_t i : {1u, 3u, 5u})
                give(pool, s, blocks[i]);
        }
        CHECK(simulated_cuda::pending() == 0);
    }
}

TEST_CASE("chunk_supply: where memory cannot be mapped any device may use it, and is waited for") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2).without_virtual_memory(), support::report_all);
    {
        weir::pool<virtual_memory, placement::best_fit<>, reuse::stream_ordered<>> pool;
        support::scoped_stream const s;
        block const b = take(pool, s, 2 * MiB);
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        touch(cudaStreamLegacy, b);
        check_cuda(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        give(pool, cudaStreamLegacy, b); // no event can be recorded there now
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamEndCapture(blocking, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        CHECK(simulated_cuda::pending() != 0);
        pool.settle();
        CHECK(simulated_cuda::pending() == 0);
    }
}
#endif

TEST_CASE("chunk_supply: the free bytes that a block is to extend do not pay for it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        for (bool tail_first : {false, true}) {
            mapped_pool pool;
            block const a = take(pool, s, 20 * MiB);
            block const b = take(pool, s, 20 * MiB);
            block const c = take(pool, s, 20 * MiB);
            give(pool, s, tail_first ? c : a);
            give(pool, s, tail_first ? a : c);
            drain(s);
#ifdef WEIR_SIMULATED_CUDA
            auto const created = simulated_cuda::calls("cuMemCreate");
            auto const moved = simulated_cuda::calls("cuMemRetainAllocationHandle");
#endif
            block const d = take(pool, s, 50 * MiB); // 20 are there, 20 of a move behind them, 10 come
#ifdef WEIR_SIMULATED_CUDA
            CHECK(simulated_cuda::calls("cuMemCreate") == created + 5);
            CHECK(simulated_cuda::calls("cuMemRetainAllocationHandle") == moved + 10);
#endif
            CHECK(d.p == c.p);
            CHECK(pool.reserved_bytes() >= 70 * MiB);
            CHECK(pool.reserved_bytes() <= 72 * MiB);
            touch(s, d);
            give(pool, s, b);
            give(pool, s, d);
            drain(s);
        }
    });
}

TEST_CASE("chunk_supply: memory moves from where it is free to where it is needed, and none is got or goes back") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool(weir::pool_options{}.limit(60 * MiB));
    std::vector<block> blocks;
    for (int i = 0; i < 6; ++i)
        blocks.push_back(take(pool, s, 10 * MiB));
    for (int i : {0, 2, 4}) {
        touch(s, blocks[static_cast<std::size_t>(i)]);
        give(pool, s, blocks[static_cast<std::size_t>(i)]);
    }
    drain(s);
    auto const created = simulated_cuda::calls("cuMemCreate");
    block const wide = take(pool, s, 30 * MiB); // at the limit: all of it is there, in three holes
    REQUIRE(wide.p);
    CHECK(wide.p == static_cast<char*>(blocks[5].p) + 10 * MiB);
    CHECK(simulated_cuda::calls("cuMemCreate") == created);
    CHECK(pool.reserved_bytes() == 60 * MiB);
    touch(s, wide);
    give(pool, s, wide);
    drain(s);
    block const again = take(pool, s, 10 * MiB); // the holes are filled from the end
    CHECK(again.p);
    CHECK(pool.reserved_bytes() == 60 * MiB);
    touch(s, again);
    for (block const& each : {blocks[1], blocks[3], blocks[5], again})
        give(pool, s, each);
    drain(s);
#endif
}

TEST_CASE("chunk_supply: a move that is refused costs no more than what it was for") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    for (bool taken : {false, true}) {
        virtual_memory upstream;
        weir::pool<virtual_memory, general, reuse::stream_ordered<>, pages> pool(upstream);
        weir::pool<virtual_memory, general, reuse::stream_ordered<>, pages> other(upstream); // of the same addresses
        std::vector<block> blocks;
        for (int i = 0; i < 60; ++i)
            blocks.push_back(take(pool, s, 2 * MiB));
        block const behind = taken ? take(other, s, 2 * MiB) : block{};
        for (std::size_t i = 0; i < blocks.size(); i += 2)
            give(pool, s, std::exchange(blocks[i], block{}));
        drain(s);
        if (!taken)
            simulated_cuda::fail_call("cuMemRetainAllocationHandle", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
        block const wide = take(pool, s, 4 * MiB);
        simulated_cuda::clear_faults();
        CHECK(wide.p);
        CHECK(pool.reserved_bytes() >= 112 * MiB); // of 120
        give(pool, s, wide);
        if (behind.p)
            give(other, s, behind);
        give_all(pool, s, blocks);
    }
#endif
}

TEST_CASE("chunk_supply: what others take while memory moves is theirs, and the rest moves on") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool(weir::pool_options{}.limit(60 * MiB));
    std::vector<block> blocks = half_freed(pool, s, 30);
    static std::function<void()> meanwhile;
    block taken;
    meanwhile = [&, before = simulated_cuda::calls("cuMemRetainAllocationHandle")] {
        if (simulated_cuda::calls("cuMemRetainAllocationHandle") == before)
            return;
        simulated_cuda::at_switch_points(nullptr); // once
        taken = take(pool, s, 2 * MiB);
    };
    simulated_cuda::at_switch_points([] { meanwhile(); });
    CHECK_FALSE(take(pool, s, 30 * MiB).p); // one hole is not free any more
    REQUIRE(taken.p);
    touch(s, taken);
    give(pool, s, taken);
    drain(s);
    block const wide = take(pool, s, 30 * MiB);
    CHECK(wide.p);
    CHECK(pool.reserved_bytes() == 60 * MiB);
    touch(s, wide);
    give(pool, s, wide);
    give_all(pool, s, blocks);
#endif
}

TEST_CASE("chunk_supply: no more moves than is lacking, and what is free besides stays") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool(weir::pool_options{}.limit(60 * MiB));
    std::vector<block> blocks = half_freed(pool, s, 30);
    auto const moved = simulated_cuda::calls("cuMemRetainAllocationHandle");
    block const wide = take(pool, s, 10 * MiB);
    CHECK(wide.p);
    CHECK(pool.reserved_bytes() == 60 * MiB);
    CHECK(simulated_cuda::calls("cuMemRetainAllocationHandle") == moved + 5);
    // More than there is, wherever it lies: nothing moves for it.
    CHECK_FALSE(take(pool, s, 22 * MiB).p);
    CHECK(simulated_cuda::calls("cuMemRetainAllocationHandle") == moved + 5);
    give(pool, s, wide);
    give_all(pool, s, blocks);
#endif
}

TEST_CASE("chunk_supply: chunks that are too large for the place go back for it, but none that is part of it") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pool<virtual_memory, general, reuse::stream_ordered<>, eighths> pool;
    block const before = take(pool, s, 10 * MiB);
    block const page = take(pool, s, 2 * MiB);
    block const behind = take(pool, s, 10 * MiB);
    block const apart = take(pool, s, 2 * MiB);
    block const large = take(pool, s, 16 * MiB); // in chunks of 4 MiB
    give(pool, s, page);
    pool.settle();
    CHECK(pool.trim() == 2 * MiB);
    block const more = take(pool, s, 3 * MiB); // at the end, since the gap has no room
    for (block const& each : {before, behind, large})
        give(pool, s, each);
    pool.settle();
    std::size_t const held = pool.reserved_bytes();
    auto const created = simulated_cuda::calls("cuMemCreate");
    block const wide = take(pool, s, 22 * MiB); // before the gap, the gap, and behind it
    CHECK(wide.p == before.p);
    CHECK(simulated_cuda::calls("cuMemCreate") == created + 1);
    CHECK(pool.reserved_bytes() == held - 4 * MiB + 2 * MiB);
    CHECK(simulated_cuda::calls("cuMemRetainAllocationHandle") == 0);
    touch(s, wide);
    for (block const& each : {apart, more, wide})
        give(pool, s, each);
    drain(s);
#endif
}

TEST_CASE("chunk_supply: work that moves memory at every step gets so much more that it moves none") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool;
    auto const moves = [] { return simulated_cuda::calls("cuMemRetainAllocationHandle"); };
    auto const step = [&] {
        std::vector<block> blocks = half_freed(pool, s, 32);
        blocks.push_back(take(pool, s, 32 * MiB));
        REQUIRE(blocks.back().p);
        give_all(pool, s, blocks);
    };
    step();
    CHECK(moves() != 0);
    for (int i = 0; i < 100; ++i)
        step();
    auto const so_far = moves();
    for (int i = 0; i < 10; ++i)
        step();
    CHECK(moves() == so_far);
    CHECK(pool.reserved_bytes() <= 2 * 64 * MiB + 64 * MiB); // twice the most in use, and a little
#endif
}

TEST_CASE("chunk_supply: a chunk has a share of what is held with what is got, and what can be moved lies in no hole") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pool<virtual_memory, general, reuse::stream_ordered<>, growth::by_holes<>> pool;
    std::vector<block> blocks{take(pool, s, 256 * MiB)};
    CHECK(simulated_cuda::calls("cuMemCreate") == 16); // a 16th each
    for (int i = 0; i < 8; ++i)
        blocks.push_back(take(pool, s, 64 * MiB));
    for (std::size_t i = 1; i < 8; i += 2)
        give(pool, s, std::exchange(blocks[i], block{}));
    drain(s);
    auto const created = simulated_cuda::calls("cuMemCreate");
    blocks.push_back(take(pool, s, 128 * MiB)); // 256 MiB are free, in four places
    CHECK(blocks.back().p);
    CHECK(simulated_cuda::calls("cuMemRetainAllocationHandle") >= 2);
    CHECK(simulated_cuda::calls("cuMemCreate") <= created + 1);
    give_all(pool, s, blocks);
#endif
}

TEST_CASE("chunk_supply: where the driver moves nothing, what is free goes back and fresh memory comes") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool(weir::pool_options{}.limit(30 * MiB));
    block const a = take(pool, s, 10 * MiB);
    block const b = take(pool, s, 10 * MiB);
    give(pool, s, a);
    drain(s);
    auto const created = simulated_cuda::calls("cuMemCreate");
    simulated_cuda::fail_call("cuMemRetainAllocationHandle", 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    block const c = take(pool, s, 20 * MiB);
    simulated_cuda::clear_faults();
    CHECK(c.p);
    CHECK(pool.reserved_bytes() == 30 * MiB);
    CHECK(simulated_cuda::calls("cuMemCreate") == created + 10);
    touch(s, c);
    give(pool, s, b);
    give(pool, s, c);
    drain(s);
#endif
}

TEST_CASE("chunk_supply: while hardly more is held than is in use, nothing is moved") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool;
    std::vector<block> blocks;
    for (int i = 0; i < 200; ++i)
        blocks.push_back(take(pool, s, 2 * MiB));
    give(pool, s, blocks[77]);
    drain(s);
    block const wide = take(pool, s, 4 * MiB); // 2 MiB in the hole are half a per cent
    CHECK(pool.reserved_bytes() == 404 * MiB);
    CHECK(simulated_cuda::calls("cuMemUnmap") == 0);
    give(pool, s, wide);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (i != 77)
            give(pool, s, blocks[i]);
    drain(s);
#endif
}

TEST_CASE("chunk_supply: small blocks, alignments and sizes of every kind") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool;
        std::mt19937_64 draw(29);
        std::vector<block> live;
        for (int step = 0; step < 600; ++step) {
            if (live.size() < 24 && draw() % 3 != 0) {
                std::size_t const bytes = std::size_t{1} << (draw() % 24);
                std::size_t const alignment = std::size_t{256} << (draw() % 15);
                block const fresh{pool.try_allocate(s, bytes, alignment), bytes};
                REQUIRE(fresh.p != nullptr);
                CHECK(reinterpret_cast<std::uintptr_t>(fresh.p) % alignment == 0);
                touch(s, fresh);
                pool.deallocate(s, fresh.p, bytes, alignment);
                live.push_back(take(pool, s, bytes));
                touch(s, live.back());
            } else if (!live.empty()) {
                std::size_t const at = draw() % live.size();
                give(pool, s, live[at]);
                live[at] = live.back();
                live.pop_back();
            }
        }
        for (block const& each : live)
            give(pool, s, each);
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE("chunk_supply: trim gives back every chunk that is wholly free, and with nothing live all") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool;
        std::vector<block> blocks;
        for (int i = 0; i < 40; ++i)
            blocks.push_back(take(pool, s, 3 * MiB)); // chunks are of 2 MiB
        for (std::size_t i = 0; i < blocks.size(); ++i)
            if (i % 10 != 0)
                give(pool, s, blocks[i]);
        pool.settle();
        pool.trim();
        CHECK(pool.reserved_bytes() <= 4 * 3 * 2 * MiB); // each of the four holds its pages, and two share one
        block const again = take(pool, s, 20 * MiB);
        touch(s, again);
        give(pool, s, again);
        for (std::size_t i = 0; i < blocks.size(); i += 10)
            give(pool, s, blocks[i]);
        pool.settle();
        CHECK(pool.trim() > 0);
        CHECK(pool.reserved_bytes() == 0);
    });
}

TEST_CASE("chunk_supply: trim keeps just what it is told to keep") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool;
        std::vector<block> blocks;
        for (int i = 0; i < 3; ++i)
            blocks.push_back(take(pool, s, 2 * MiB));
        CHECK(pool.reserved_bytes() == 6 * MiB);
        give_all(pool, s, blocks);
        pool.settle();
        CHECK(pool.trim(4 * MiB) == 2 * MiB);
        CHECK(pool.reserved_bytes() == 4 * MiB);
        CHECK(pool.trim(4 * MiB - 1) == 2 * MiB); // a whole chunk, or none
        CHECK(pool.trim() == 2 * MiB);
    });
}

TEST_CASE("chunk_supply: with one block of a hundred live, trim gives nearly every page back that none of them lies in") {
    support::scoped_stream const s;
    for (unsigned seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        mapped_pool pool; // chunks of a page: what is larger goes back as a whole or not at all
        std::mt19937 draw(seed);
        std::vector<block> blocks;
        for (int i = 0; i < 6000; ++i)
            blocks.push_back(take(pool, s, 128 * KiB));
        std::size_t const held = pool.reserved_bytes();
        std::set<std::uintptr_t> used; // pages
        for (block& each : blocks) {
            if (draw() % 100 == 0) {
                auto const at = reinterpret_cast<std::uintptr_t>(each.p);
                for (std::uintptr_t page = at / (2 * MiB); page <= (at + each.bytes - 1) / (2 * MiB); ++page)
                    used.insert(page);
            } else {
                give(pool, s, std::exchange(each, block{}));
            }
        }
        drain(s);
        std::size_t const unused = held - used.size() * 2 * MiB;
        REQUIRE(unused > held / 2);
        CHECK(pool.trim() >= unused / 100 * 95);
        give_all(pool, s, blocks);
        pool.settle(); // what a stream freed last is its own until then
        pool.trim();
        CHECK(pool.reserved_bytes() == 0);
    }
}

TEST_CASE("chunk_supply: a limit holds, and all of it can be used") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool(weir::pool_options{}.limit(40 * MiB));
        std::vector<block> blocks;
        for (int i = 0; i < 20; ++i)
            blocks.push_back(take(pool, s, 2 * MiB));
        CHECK(pool.reserved_bytes() == 40 * MiB);
        CHECK(take(pool, s, 1).p == nullptr);
        for (std::size_t i = 0; i < blocks.size(); i += 2)
            give(pool, s, blocks[i]);
        drain(s);
        block const large = take(pool, s, 20 * MiB); // no two of the free pages touch
        CHECK(large.p != nullptr);
        CHECK(pool.reserved_bytes() == 40 * MiB);
        CHECK(take(pool, s, 1).p == nullptr);
        touch(s, large);
        give(pool, s, large);
        for (std::size_t i = 1; i < blocks.size(); i += 2)
            give(pool, s, blocks[i]);
        drain(s);
    });
}

TEST_CASE("chunk_supply: a block whose alignment takes more than the limit is refused, and what is held stays") {
    support::every_schedule([] {
        support::scoped_stream const s;
        mapped_pool pool(weir::pool_options{}.limit(40 * MiB));
        give(pool, s, take(pool, s, 20 * MiB));
        drain(s);
        CHECK(pool.try_allocate(s, 40 * MiB, 32 * MiB) == nullptr);
        CHECK(pool.reserved_bytes() == 20 * MiB);
        CHECK(pool.try_allocate(s, 40 * MiB, ~(~std::size_t{0} >> 1)) == nullptr); // more than there are addresses
        CHECK(pool.reserved_bytes() == 20 * MiB);
        block const all = take(pool, s, 40 * MiB);
        CHECK(all.p != nullptr);
        give(pool, s, all);
        drain(s);
    });
}

TEST_CASE("chunk_supply: a loop of equal steps makes no driver call from the second step on") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool;
    std::mt19937_64 draw(31);
    std::vector<std::size_t> sizes(60);
    for (std::size_t& each : sizes)
        each = std::size_t{1} << (12 + draw() % 12);
    auto const step = [&] { // forward: keep every second; backward: free them, newest first
        std::vector<block> kept;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            block const fresh = take(pool, s, sizes[i]);
            REQUIRE(fresh.p != nullptr);
            if (i % 2 == 0)
                kept.push_back(fresh);
            else
                give(pool, s, fresh);
        }
        while (!kept.empty()) {
            block const work = take(pool, s, kept.back().bytes / 2);
            give(pool, s, kept.back());
            give(pool, s, work);
            kept.pop_back();
        }
    };
    auto const calls = [] {
        return simulated_cuda::calls("cuMemCreate") + simulated_cuda::calls("cuMemUnmap") + simulated_cuda::calls("cudaMalloc");
    };
    step();
    auto const after_first = calls();
    CHECK(after_first > 0);
    for (int i = 0; i < 1000; ++i)
        step();
    CHECK(calls() == after_first);
    drain(s);
#endif
}

#ifdef WEIR_SIMULATED_CUDA
namespace {

// The last of 100 equal steps, in which blocks come and go among holes, that maps memory.
template <unsigned MovedPercent>
int last_step_that_maps() {
    using two_mib = support::paged_of<512, 2 * MiB, 2 * MiB>;
    using growing = support::by_holes_of<two_mib, two_mib, two_mib, MovedPercent>;
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pool<virtual_memory, general, reuse::stream_ordered<>, growing> pool;
    int last = 0;
    for (int step = 1; step <= 100; ++step) {
        auto const before = simulated_cuda::calls("cuMemMap");
        std::mt19937_64 draw(5); // the same in each
        std::vector<block> live;
        for (int i = 0; i < 300; ++i) {
            if (live.size() < 24) {
                live.push_back(take(pool, s, (1 + draw() % 32) * 512 * KiB));
                REQUIRE(live.back().p != nullptr);
                continue;
            }
            for (int n = 0; n < 6; ++n) {
                std::swap(live[draw() % live.size()], live.back());
                give(pool, s, live.back());
                live.pop_back();
            }
        }
        give_all(pool, s, live);
        if (simulated_cuda::calls("cuMemMap") != before)
            last = step;
    }
    return last;
}

} // namespace

TEST_CASE("chunk_supply: equal steps that move memory soon move none, where the growth policy wants that") {
    CHECK(last_step_that_maps<25>() < 10);
    CHECK(last_step_that_maps<400>() == 100); // this program moves some of what is held in every step, for ever
}
#endif

TEST_CASE("chunk_supply: every call that growth makes may fail: the pool is as it was, and goes on") {
    struct state {
        support::scoped_stream s;
        mapped_pool pool;
        block a = take(pool, s, 8 * MiB);
        block b = take(pool, s, 8 * MiB);
        block c = take(pool, s, 4 * MiB);
        block d;
        state() {
            give(pool, s, b);
            drain(s);
        }
        ~state() {
            for (block const& each : {a, c, d})
                give(pool, s, each);
        }
    };
    auto const runs = support::fault_sweep(
        [] { return std::make_unique<state>(); },
        [](state& x) { x.d = take(x.pool, x.s, 12 * MiB); }, // b's pages pay
        [](state& x, support::struck const& fault) {
            CHECK((x.d.p || !fault.calls.empty()));
            if (!x.d.p) {
                CHECK(x.pool.in_use_bytes() == 12 * MiB);
                if (fault.calls.size() == 1) // else it could not go back either, and is the next call's
                    CHECK(x.pool.reserved_bytes() <= 20 * MiB);
                x.d = take(x.pool, x.s, 12 * MiB);
                CHECK(x.d.p != nullptr);
            }
            touch(x.s, x.d);
        }, support::faults::pairs_too);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 20);
#endif
    static_cast<void>(runs);
}

TEST_CASE("chunk_supply: where chunks start at no page, a block that is aligned to one is found in the second chunk") {
    int chunks = 0;
    weir::pool<beside_pages, placement::best_fit<>, reuse::immediate, growth::exact> pool{beside_pages{&chunks}};
    void* const p = pool.try_allocate(weir::on_host, 2 * MiB, 2 * MiB);
    REQUIRE(p != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % (2 * MiB) == 0);
    CHECK(chunks == 2); // the first has room as chunks start as a rule, the second wherever it starts
    pool.deallocate(weir::on_host, p, 2 * MiB, 2 * MiB);
}

TEST_CASE_TEMPLATE("chunk_supply: a chunk in which no block has room goes back with the others", Rule, reuse::immediate,
                   reuse::stream_ordered<>) {
    int chunks = 0;
    weir::pool<beside_pages, placement::slab<2 * MiB>, Rule, growth::exact> pool{beside_pages{&chunks}};
    void* const p = pool.try_allocate(weir::on_host, 2 * MiB, 2 * MiB);
    REQUIRE(p != nullptr);
    CHECK(chunks == 2); // one as large as the block, which starts behind a page, and one that has room around it
    CHECK(pool.reserved_bytes() == 4 * MiB); // for which the first went back
    pool.deallocate(weir::on_host, p, 2 * MiB, 2 * MiB);
    CHECK(pool.trim() == 4 * MiB);
    CHECK(pool.reserved_bytes() == 0);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE_TEMPLATE("chunk_supply: a pool that ends waits for what still uses its memory, leaked or lost to a graph", Rule,
                   reuse::stream_ordered<>, reuse::after_event) {
    simulated_cuda::world world(simulated_cuda::config{}.late());
    support::scoped_stream const s;
    {
        weir::pool<virtual_memory, general, Rule, pages> pool;
        block const leaked = take(pool, s, 2 * MiB);
        touch(s, leaked); // has not run when the pool ends
    }
    CHECK(simulated_cuda::reports().empty());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runs = nullptr;
    {
        weir::pool<virtual_memory, general, Rule, pages> pool;
        block const used = take(pool, s, 2 * MiB);
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        touch(s, used);
        give(pool, s, used);
        check_cuda(cudaStreamEndCapture(s, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&runs, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphLaunch(runs, s), "cudaGraphLaunch");
    }
    CHECK(simulated_cuda::reports().empty());
    check_cuda(cudaGraphExecDestroy(runs), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("chunk_supply: whatever call fails while pages of several streams go back, none is lost") {
    struct state {
        support::scoped_stream s, t, u;
        mapped_pool pool;
        block a = take(pool, s, 6 * MiB);
        block b = take(pool, t, 6 * MiB);
        block c = take(pool, u, 6 * MiB);
        block d;
        state() {
            for (auto const& [stream, each] : {std::pair<cudaStream_t, block>{s, a}, {t, b}}) {
                touch(stream, each);
                give(pool, stream, each);
            }
            drain(t); // the pages of b may go back, those of a not yet
        }
    };
    auto const runs = support::fault_sweep(
        [] { return std::make_unique<state>(); }, [](state& x) { x.d = take(x.pool, x.u, 20 * MiB); },
        [](state& x, support::struck const& fault) {
            if (x.d.p)
                give(x.pool, x.u, x.d);
            give(x.pool, x.u, x.c);
            x.pool.settle();
            x.pool.trim();
            if (!fault.for_ever)
                CHECK(x.pool.reserved_bytes() == 0);
        }, support::faults::pairs_too);
    CHECK(runs >= 20);
}

TEST_CASE("chunk_supply: over an upstream that never grows in place, paged growth asks for chunks of their own") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pool<weir::upstream::device, general, reuse::stream_ordered<>, growth::paged<>> pool;
    block const a = take(pool, s, 1 * MiB);
    CHECK(pool.reserved_bytes() == growth::geometric<>::next(1 * MiB, 0));
    CHECK(simulated_cuda::calls("cudaMalloc") == 1);
    give(pool, s, a);
}

TEST_CASE("chunk_supply: chunks are large while a pool only fills, and small once what is free lies in holes") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pool<virtual_memory, general, reuse::stream_ordered<>, growth::by_holes<>> pool;
    std::vector<block> blocks;
    for (int i = 0; i < 128; ++i)
        blocks.push_back(take(pool, s, 2 * MiB));
    CHECK(pool.reserved_bytes() < 280 * MiB);
    CHECK(simulated_cuda::calls("cuMemCreate") < 30); // 8 MiB each, then a 16th of what is held
    for (std::size_t i = 0; i < blocks.size(); i += 2)
        give(pool, s, std::exchange(blocks[i], block{}));
    drain(s);
    std::size_t const held = pool.reserved_bytes();
    auto const before = simulated_cuda::calls("cuMemCreate");
    block const large = take(pool, s, 32 * MiB); // half is free, but nowhere so much of it
    CHECK(large.p);
    CHECK(pool.reserved_bytes() <= held + 32 * MiB);
    CHECK(simulated_cuda::calls("cuMemCreate") >= before + 4);
    // What was got since goes back.
    give(pool, s, large);
    drain(s);
    pool.trim();
    CHECK(pool.reserved_bytes() <= held);
    give_all(pool, s, blocks);
}

TEST_CASE("chunk_supply: under a limit chunks are small beside it, so that all of it can be used") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    weir::pool<virtual_memory, general, reuse::stream_ordered<>, growth::by_holes<>> pool(
        weir::pool_options{}.limit(256 * MiB));
    std::vector<block> blocks;
    for (int i = 0; i < 128; ++i)
        blocks.push_back(take(pool, s, 2 * MiB));
    CHECK(blocks.back().p);
    for (std::size_t i = 0; i < blocks.size(); i += 2)
        give(pool, s, std::exchange(blocks[i], block{}));
    drain(s);
    block const large = take(pool, s, 128 * MiB); // every second block's page moves
    CHECK(large.p);
    CHECK(pool.reserved_bytes() <= 256 * MiB);
    give(pool, s, large);
    give_all(pool, s, blocks);
}

TEST_CASE("chunk_supply: after a trim, memory moves again as if no more had ever been in use") {
    for (bool peak : {false, true}) {
        CAPTURE(peak);
        simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
        support::scoped_stream const s;
        weir::pool<virtual_memory, placement::best_fit<>, reuse::stream_ordered<>, growth::exact> pool;
        if (peak) {
            block const first = take(pool, s, 2 * MiB);
            block const most = take(pool, s, 256 * MiB);
            give(pool, s, most);
            give(pool, s, first);
            pool.settle();
            pool.trim();
            REQUIRE(pool.reserved_bytes() == 0);
        }
        std::vector<block> blocks = half_freed(pool, s, 16);
        pool.settle();
        blocks.push_back(take(pool, s, 16 * MiB)); // half of what is held lies free
        CHECK(pool.reserved_bytes() == 32 * MiB);
        give_all(pool, s, blocks);
    }
}

TEST_CASE("chunk_supply: what no chunk within the limit can hold is refused without a wait for what is in flight") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const s, t;
    weir::pool<weir::upstream::device, placement::best_fit<>, reuse::stream_ordered<>> pool(
        weir::pool_options{}.limit(3 * MiB)); // a page of 2 MiB, and no second one
    block const a = take(pool, s, 1 * MiB);
    touch(s, a);
    give(pool, s, a);
    std::size_t const in_flight = simulated_cuda::pending();
    REQUIRE(in_flight != 0);
    CHECK(take(pool, t, 5 * MiB / 2).p == nullptr);
    CHECK(simulated_cuda::pending() == in_flight);
    drain(s);
}

TEST_CASE("chunk_supply: a request in vain does not map what there is") {
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(std::size_t{4} << 30));
    support::scoped_stream const s;
    mapped_pool pool;
    CHECK(take(pool, s, std::size_t{5} << 30).p == nullptr);
    CHECK(simulated_cuda::calls("cuMemCreate") < 100);
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE_TEMPLATE("chunk_supply: at the limit, and on a full device, slack gives way", Rule, reuse::stream_ordered<>,
                   reuse::immediate) {
    for (bool limited : {false, true}) {
        simulated_cuda::world const world(simulated_cuda::config{}.with_memory(limited ? std::size_t{4} << 30 : 998 * MiB));
        support::scoped_stream const s;
        weir::pool<virtual_memory, general, Rule, pages> pool(
            limited ? weir::pool_options{}.limit(998 * MiB) : weir::pool_options{});
        std::vector<block> blocks;
        for (int i = 0; i < 498; ++i)
            blocks.push_back(take(pool, s, 2 * MiB));
        blocks.push_back(take(pool, s, 1 * MiB));
        give(pool, s, blocks[77]);
        drain(s);
        blocks[77] = take(pool, s, 3 * MiB); // 1 MiB is free at the end, 2 in the middle
        CHECK(blocks[77].p != nullptr);
        CHECK(pool.reserved_bytes() == 998 * MiB);
        for (block const& each : blocks)
            give(pool, s, each);
        drain(s);
    }
}

TEST_CASE("chunk_supply: where a device cannot map memory, the pool grows in chunks, and its report says so") {
    simulated_cuda::world const world(simulated_cuda::config{}.without_virtual_memory());
    support::scoped_stream const s;
    mapped_pool pool;
    block const a = take(pool, s, 1 * MiB);
    CHECK(pool.reserved_bytes() == 16 * MiB); // growth::geometric's
    block const b = take(pool, s, 100 * MiB);
    CHECK(simulated_cuda::calls("cudaMalloc") == 2);
    CHECK(simulated_cuda::calls("cuMemCreate") == 0);
    CHECK(std::string(pool.report()).find("device memory that cannot grow in place") != std::string::npos);
    give(pool, s, a);
    give(pool, s, b);
    drain(s);
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE("chunk_supply: where only the first chunk shows that a device cannot map memory, the pool goes on with chunks of its own") {
    simulated_cuda::world const world;
    support::scoped_stream const s;
    mapped_pool pool(weir::pool_options{}.limit(200 * MiB));
    simulated_cuda::fail_call("cuMemCreate", 1, cudaErrorNotSupported, simulated_cuda::lasting::for_ever);
    block const a = take(pool, s, 20 * MiB); // in pieces of 2 MiB, if it could be
    CHECK(a.p);
    CHECK(pool.state().chunks == 1);
    block const b = take(pool, s, 6 * MiB);
    CHECK(b.p);
    CHECK(simulated_cuda::calls("cudaMalloc") == 2);
    CHECK(std::string(pool.report()).find("device memory that cannot grow in place") != std::string::npos);
    give(pool, s, a);
    give(pool, s, b);
    drain(s);
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
    pool.reserve(100 * MiB);
    CHECK(pool.state().chunks == 1);
}
#endif
