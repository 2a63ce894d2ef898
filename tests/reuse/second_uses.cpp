// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// When may bytes be handed out again that other streams use? What the rules make of marks and of last uses; how those are
// noted: tests/order/second_uses.cpp.

#ifdef WEIR_SIMULATED_CUDA

#include "stage.hpp"

#include <memory>
#include <support/capture.hpp>
#include <support/fault_sweep.hpp>
#include <thread>
#include <vector>
#include <weir/order/order_after.hpp>

using namespace stage;
using weir::on_host;

namespace {

using loose = watched<pool_of<stream_ordered<checked, grow_first, grown_up>>>;
using fits = watched<pool_of<stream_ordered<checked, grow_first, closing>>>;
using waits = watched<pool_of<stream_ordered<checked, wait_first, closing>, sized>>;
using trusts = watched<pool_of<stream_ordered<promised, grow_first, grown_up>, sized>>;
using pends = watched<pool_of<weir::reuse::after_event>>;
using pends_sized = watched<pool_of<weir::reuse::after_event, sized>>;

#define EVERY_RULE loose, fits, waits, trusts, pends, pends_sized

/// Other streams, and the block's own, get bytes and write them: the device reports those that are in use.
template <class Pool>
void write_around(Pool& pool, std::size_t bytes, std::initializer_list<cudaStream_t> streams) {
    for (int round = 0; round < 3; ++round)
        for (cudaStream_t const each : streams)
            pool.deallocate(each, pool.write(each, bytes), bytes);
}

/// Everything comes back when the streams are done, and no byte is lost.
template <class Pool>
void check_nothing_is_lost(Pool& pool) {
    check_all_returns(pool);
    CHECK(pool->state().lost_bytes == 0);
}

} // namespace

TEST_CASE_TEMPLATE("second uses: a stream that was marked before its launches is waited for", Pool, EVERY_RULE) {
    for (std::size_t const bytes : {4 * KiB, 1 * MiB})
        for (cudaStream_t const other : {cudaStream_t(nullptr), cudaStreamLegacy, cudaStreamPerThread}) {
            CAPTURE(bytes);
            world const here;
            stream a, b, c;
            Pool pool;
            cudaStream_t const user = other ? other : cudaStream_t(b);
            void* const p = pool.write(a, bytes);
            pool->used_on(p, user);
            weir::order_after(user, a);
            for (int i = 0; i < 3; ++i)
                CHECK(device::launch(user, {}, {{p, bytes}}) == cudaSuccess);
            pool.deallocate(a, p, bytes);
            write_around(pool, bytes, {a, c});
            check_nothing_is_lost(pool);
        }
}

TEST_CASE_TEMPLATE("second uses: many streams and many marks on many blocks", Pool, EVERY_RULE) {
    world const here;
    stream a, users[5];
    Pool pool;
    std::vector<void*> blocks;
    for (int i = 0; i < 60; ++i)
        blocks.push_back(pool.write(a, 8 * KiB));
    for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t k = 0; k <= i % 5; ++k)
            for (int again = 0; again < 3; ++again)
                pool->used_on(blocks[i], users[(i + k) % 5]);
    for (stream const& each : users)
        weir::order_after(each, a);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        for (std::size_t k = 0; k <= i % 5; ++k) // reads, side by side
            CHECK(device::launch(users[(i + k) % 5], {{blocks[i], 8 * KiB}}, {}) == cudaSuccess);
    for (void* const each : blocks)
        pool.deallocate(a, each, 8 * KiB);
    write_around(pool, 8 * KiB, {a, users[0]});
    check_nothing_is_lost(pool);
}

TEST_CASE_TEMPLATE("second uses: its own stream needs no event, and its block is there at once", Pool, loose, trusts) {
    world const here;
    stream a;
    Pool pool;
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, a);
    pool.deallocate(a, p, 1 * MiB);
    CHECK(pool.write(a, 1 * MiB) == p);
    pool.deallocate(a, p, 1 * MiB);
    check_nothing_is_lost(pool);
}

TEST_CASE_TEMPLATE("second uses: a host's free waits for marked streams", Pool, EVERY_RULE) {
    world const here;
    stream b;
    Pool pool;
    void* const p = pool->allocate_sync(1 * MiB);
    pool->used_on(p, b);
    CHECK(device::launch(b, {}, {{p, 1 * MiB}}) == cudaSuccess);
    pool->deallocate_sync(p, 1 * MiB);
    CHECK(device::pending() != 0);
    void* const q = pool->allocate_sync(1 * MiB);
    CHECK((q != p || device::pending() == 0));
    pool->deallocate_sync(q, 1 * MiB);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    check_nothing_is_lost(pool);
}

TEST_CASE_TEMPLATE("second uses: where a marked stream is captured at the free, its graph keeps the bytes", Pool, EVERY_RULE) {
    world const here;
    stream a, b, c;
    Pool pool;
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, b);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(b, cudaStreamCaptureModeGlobal) == cudaSuccess);
    pool.deallocate(a, p, 1 * MiB);
    CHECK(cudaStreamEndCapture(b, &graph) == cudaSuccess);
    CHECK(pool->state().lost_bytes == 1 * MiB);
    CHECK(pool->state().live_blocks == 0);
    for (int round = 0; round < 2; ++round) {
        pool->settle();
        std::vector<void*> others;
        for (int i = 0; i < 12; ++i) {
            others.push_back(pool.write(i % 2 ? a : c, 1 * MiB));
            CHECK(others.back() != p);
        }
        for (int i = 0; i < 12; ++i)
            pool.deallocate(i % 2 ? a : c, others[static_cast<std::size_t>(i)], 1 * MiB);
    }
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE_TEMPLATE("second uses: a capture in the legacy stream's way strands a block that it uses, and 'settle' frees it", Pool,
                   EVERY_RULE) {
    world const here;
    stream a, blocking(cudaStreamDefault);
    Pool pool;
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, cudaStreamLegacy);
    weir::order_after(cudaStreamLegacy, a);
    CHECK(device::launch(cudaStreamLegacy, {}, {{p, 1 * MiB}}) == cudaSuccess);
    {
        support::capture graph(blocking);
        pool.deallocate(a, p, 1 * MiB);
        CHECK(graph.unbroken());
    }
    CHECK(pool->state().lost_bytes == 0);
    write_around(pool, 1 * MiB, {a});
    check_nothing_is_lost(pool);
}

TEST_CASE_TEMPLATE("second uses: a mark of a thread's own default stream is that thread's, whoever frees", Pool, EVERY_RULE) {
    for (bool const ends : {false, true}) // the thread, before the free, with its work under way
        for (int const freed_on : {0, 1, 2}) {
            CAPTURE(ends);
            CAPTURE(freed_on);
            world const here;
            stream a;
            Pool pool;
            void* p = nullptr;
            auto const use = [&] {
                p = pool.write(a, 1 * MiB);
                weir::order_after(cudaStreamPerThread, a);
                if (ends) {
                    CHECK(device::launch(cudaStreamPerThread, {}, {{p, 1 * MiB}}) == cudaSuccess);
                    pool->used_on(p, cudaStreamPerThread);
                } else {
                    pool->used_on(p, cudaStreamPerThread);
                    CHECK(device::launch(cudaStreamPerThread, {}, {{p, 1 * MiB}}) == cudaSuccess);
                }
            };
            auto const free = [&] {
                cudaStream_t const on[] = {a, cudaStreamPerThread, cudaStreamLegacy};
                if (freed_on != 0)
                    weir::order_after(on[freed_on], a);
                pool.deallocate(on[freed_on], p, 1 * MiB);
                write_around(pool, 1 * MiB, {a, cudaStreamPerThread});
            };
            if (ends) {
                std::thread(use).join();
                free();
            } else {
                use();
                std::thread(free).join();
            }
            check_nothing_is_lost(pool);
        }
}

TEST_CASE_TEMPLATE("second uses: where a capture may be another thread's own stream's, its graph keeps the bytes", Pool, EVERY_RULE) {
    world const here;
    stream a;
    Pool pool;
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, cudaStreamPerThread);
    {
        support::capture graph(cudaStreamPerThread, cudaStreamCaptureModeRelaxed);
        std::thread([&] { pool.deallocate(a, p, 1 * MiB); }).join();
        CHECK(graph.unbroken());
    }
    CHECK(pool->state().lost_bytes == 1 * MiB);
    pool->settle();
    void* const q = pool.write(a, 1 * MiB);
    CHECK(q != p);
    pool.deallocate(a, q, 1 * MiB);
}

TEST_CASE("second uses: a default stream is the one of the device where it was marked") {
    using managed = watched<pool_of<stream_ordered<checked, grow_first, closing>, fitted, weir::upstream::managed>>;
    for (cudaStream_t const user : {cudaStreamLegacy, cudaStreamPerThread}) {
        world const here(device::config{}.late().with_devices(2));
        managed pool(weir::pool_options{}.limit(2 * MiB));
        stream a;
        void* const p = pool.write(a, 2 * MiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        pool->used_on(p, user);
        CHECK(device::launch(user, {}, {{p, 2 * MiB}}) == cudaSuccess);
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        pool.deallocate(a, p, 2 * MiB);
        tally const calls;
        CHECK(pool.write(a, 2 * MiB) == p); // after the event that was recorded there
        CHECK(calls.device_waits() == 0);
        pool.deallocate(a, p, 2 * MiB);
        int now = -1;
        CHECK(cudaGetDevice(&now) == cudaSuccess);
        CHECK(now == 0);
        check_nothing_is_lost(pool);
    }
}

TEST_CASE_TEMPLATE("second uses: a handle that another stream bears by now tells nothing, and 'settle' frees the block", Pool,
                   EVERY_RULE) {
    world const here;
    stream a, b;
    Pool pool;
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, b);
    weir::order_after(b, a);
    CHECK(device::launch(b, {}, {{p, 1 * MiB}}) == cudaSuccess);
    cudaStream_t const handle = b;
    b.destroy(); // against the promise
    std::vector<std::unique_ptr<stream>> heirs;
    do
        heirs.push_back(std::make_unique<stream>());
    while (*heirs.back() != handle && heirs.size() < 50);
    REQUIRE(*heirs.back() == handle);
    pool.deallocate(a, p, 1 * MiB);
    write_around(pool, 1 * MiB, {a, handle});
    check_nothing_is_lost(pool);
}

TEST_CASE("second uses: a marked stream that is gone at the free is reported by the device") {
    device::world const here(device::config{}.late(), [](auto const&) {});
    stream a, b;
    loose pool;
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, b);
    b.destroy();
    CHECK(device::reports(device::finding::destroyed_handle).empty());
    pool.deallocate(a, p, 1 * MiB);
    CHECK_FALSE(device::reports(device::finding::destroyed_handle).empty());
    check_nothing_is_lost(pool);
}

TEST_CASE_TEMPLATE("second uses: whatever call of a free fails, its block is not handed out in use, and comes back", Pool, EVERY_RULE) {
    struct state {
        stream a, b, c;
        Pool pool;
        void* p = nullptr;
    };
    bool marks_own_stream = true;
    auto const prepare = [&] {
        auto fresh = std::make_unique<state>();
        fresh->p = fresh->pool.write(fresh->a, 1 * MiB);
        weir::order_after(fresh->b, fresh->a);
        fresh->pool->used_on(fresh->p, fresh->b);
        if (marks_own_stream)
            fresh->pool->used_on(fresh->p, cudaStreamPerThread);
        CHECK(device::launch(fresh->b, {}, {{fresh->p, 1 * MiB}}) == cudaSuccess);
        weir::order_after(cudaStreamPerThread, fresh->b);
        if (marks_own_stream)
            CHECK(device::launch(cudaStreamPerThread, {}, {{fresh->p, 1 * MiB}}) == cudaSuccess);
        return fresh;
    };
    auto const free = [](state& x) { x.pool.deallocate(x.a, x.p, 1 * MiB); };
    auto const judge = [](state& x, support::struck const& fault) {
        CHECK_FALSE(fault.threw);
        write_around(x.pool, 1 * MiB, {x.a, x.c});
        if (fault.for_ever || fault.hit_twice("cudaStreamIsCapturing")) // then a graph may be captured there
            CHECK(x.pool->state().live_blocks == 0);
        else
            check_all_returns(x.pool);
    };
    CHECK(support::fault_sweep(prepare, free, judge) >= 8);
    marks_own_stream = false; // if its end cannot be noted twice, the block may be a graph's
    CHECK(support::fault_sweep(prepare, free, judge, support::faults::pairs_too) >= 20);
}

#endif
