// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Freed bytes are anyone's once the device has caught up: before that nobody's, after that everybody's, and no stream
// ever waits for another.

#include "stage.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <support/capture.hpp>
#include <support/failing_new.hpp>
#include <thread>
#include <utility>
#include <vector>

using namespace stage;
using weir::on_host;
using weir::pool_options;
using weir::usage_error;

namespace {

using rule = weir::reuse::after_event;
using staging = watched<pool_of<rule, fitted, weir::upstream::pinned<>>>; // of no device
using on_device = watched<pool_of<rule>>;
using in_slabs = watched<pool_of<rule, sized>>;

static_assert(rule::thread_safe && rule::orders_streams && !rule::waits_before_growing);

// Where the pool's one chunk, of so many bytes and wholly free, begins.
std::uintptr_t make_chunk(on_device& pool, stream& on, std::size_t bytes) {
    void* const all = pool.allocate(on, bytes);
    pool.deallocate(on, all, bytes);
    CHECK(cudaStreamSynchronize(on) == cudaSuccess);
    return reinterpret_cast<std::uintptr_t>(all);
}

} // namespace

TEST_CASE_TEMPLATE("after_event: a freed block is nobody's until the device has caught up", Pool, staging, on_device,
                   in_slabs) {
    world const here;
    stream a, b;
    Pool pool;
    void* const p = pool.write(a, 1 * MiB);
    pool.deallocate(a, p, 1 * MiB);
    CHECK(pool->in_use_bytes() == 0);
    tally const calls;
    void* const q = pool.write(a, 1 * MiB); // not even its own stream's
    CHECK(q != p);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    void* const r = pool.write(b, 1 * MiB);
    CHECK(r == p);
    CHECK(calls.waits() == 0);
    CHECK(calls.host_waits() == 1); // the test's own
    pool.deallocate(a, q, 1 * MiB);
    pool.deallocate(b, r, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: at the limit the host waits, and no stream does") {
    world const here;
    stream a, b;
    on_device pool(pool_options{}.limit(2 * MiB));
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    tally const calls;
    CHECK(pool.write(b, 2 * MiB) == p);
    CHECK(calls.of("cudaEventSynchronize") == 1);
    CHECK(calls.waits() + calls.chunks() + calls.device_waits() == 0);
    pool.deallocate(b, p, 2 * MiB);
    CHECK(pool.try_allocate(b, 2 * MiB + 1) == nullptr);
    check_all_returns(pool);
}

TEST_CASE("after_event: a wait at the limit does not break the capture of another stream") {
    world const here;
    stream a, b, c;
    on_device pool(pool_options{}.limit(2 * MiB));
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    void* q = nullptr;
    {
        support::capture graph(c);
        CHECK_NOTHROW(q = pool.try_allocate(b, 2 * MiB)); // waits for an event
        CHECK(graph.unbroken());
    }
    CHECK(q == p);
    if (q)
        pool.deallocate(b, q, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: events are waited for before a device is: where one will do, no capture breaks on a full one") {
    world const here(device::config{}.late().with_devices(2));
    stream a, b, c, d;
    on_device pool(pool_options{}.limit(8 * MiB));
    void* const p = pool.write(d, 4 * MiB);
    void* const q = pool.write(a, 4 * MiB);
    device::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
    pool.deallocate(d, p, 4 * MiB); // of which no event tells
    device::clear_faults();
    pool.deallocate(a, q, 4 * MiB);
    {
        support::capture graph(c);
        device::fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation, device::lasting::for_ever);
        CHECK(pool.try_allocate(b, 4 * MiB) == q);
        device::clear_faults();
        CHECK(graph.unbroken());
        pool.deallocate(b, q, 4 * MiB);
    }
    check_all_returns(pool);
}

TEST_CASE("after_event: what no event tells of is found at the limit") {
    for (bool const fault : {false, true}) {
        CAPTURE(fault);
        world const here(device::config{}.late());
        stream b, c;
        on_device pool(pool_options{}.limit(4 * MiB));
        void* const p = pool.write(cudaStreamLegacy, 3 * MiB);
        if (fault) {
            device::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
            pool.deallocate(cudaStreamLegacy, p, 3 * MiB);
            device::clear_faults();
        } else {
            cudaStream_t blocking = nullptr;
            weir::check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
            {
                support::capture graph(blocking); // in the legacy stream's way
                pool.deallocate(cudaStreamLegacy, p, 3 * MiB);
            }
            weir::check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
        }
        void* const q = pool.write(c, 3 * MiB);
        CHECK(q == p);
        pool.deallocate(c, q, 3 * MiB);
        check_all_returns(pool);
    }
}

TEST_CASE("after_event: growth comes before a wait") {
    world const here;
    stream a;
    on_device pool(pool_options{}.limit(8 * MiB));
    for (int i = 0; i < 4; ++i) {
        void* const p = pool.write(a, 2 * MiB);
        pool.deallocate(a, p, 2 * MiB);
    }
    CHECK(pool->state().chunks == 4);
    CHECK(pool->reserved_bytes() == 8 * MiB);
    void* const p = pool.write(a, 6 * MiB);
    CHECK(p != nullptr);
    CHECK(pool->reserved_bytes() <= 8 * MiB);
    pool.deallocate(a, p, 6 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: of what is over by then, a block of that size goes straight to the next taker") {
    world const here;
    stream a;
    on_device pool(pool_options{}.limit(16 * MiB));
    make_chunk(pool, a, 16 * MiB);
    void* blocks[4];
    for (void*& each : blocks)
        each = pool.write(a, 4 * MiB);
    for (int which : {2, 1, 3})
        pool.deallocate(a, blocks[which], 4 * MiB);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(pool.write(a, 4 * MiB) == blocks[2]); // the first that was freed
    CHECK(pool->in_use_bytes() == 8 * MiB);
    void* const others[] = {pool.write(a, 4 * MiB), pool.write(a, 4 * MiB)};
    CHECK(std::minmax(others[0], others[1]) == std::minmax(blocks[1], blocks[3]));
    CHECK(pool.try_allocate(a, 4 * MiB) == nullptr); // none of them is there twice
    for (void* each : blocks)
        pool.deallocate(a, each, 4 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: a block of that size but not of that alignment is joined with the others") {
    world const here;
    stream a;
    on_device pool(pool_options{}.limit(16 * MiB));
    REQUIRE(make_chunk(pool, a, 16 * MiB) % (8 * MiB) == 0);
    void* const first = pool.write(a, 4 * MiB);
    void* const second = pool.write(a, 4 * MiB);
    void* const third = pool.write(a, 8 * MiB);
    pool.deallocate(a, second, 4 * MiB);
    pool.deallocate(a, first, 4 * MiB);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    void* const aligned = pool.allocate(a, 4 * MiB, 8 * MiB);
    CHECK(reinterpret_cast<std::uintptr_t>(aligned) % (8 * MiB) == 0);
    pool.deallocate(a, aligned, 4 * MiB, 8 * MiB);
    pool.deallocate(a, third, 8 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: a block that fits is not lost where the question about another stream fails") {
    world const here;
    stream a, b;
    on_device pool(pool_options{}.limit(8 * MiB));
    void* const on_a = pool.write(a, 4 * MiB);
    void* const on_b = pool.write(b, 4 * MiB);
    pool.deallocate(a, on_a, 4 * MiB);
    pool.deallocate(b, on_b, 4 * MiB);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    device::fail_call("cudaEventQuery", 2, cudaErrorUnknown);
    void* const first = pool.write(a, 4 * MiB);
    CHECK(pool->in_use_bytes() == 4 * MiB);
    device::fail_call("cudaEventQuery", 1, cudaErrorUnknown); // now about the other one
    CHECK_THROWS_AS(static_cast<void>(pool.allocate(a, 4 * MiB)), weir::cuda_error);
    CHECK(pool->in_use_bytes() == 4 * MiB);
    void* const second = pool.write(a, 4 * MiB);
    CHECK(first != second);
    pool.deallocate(a, first, 4 * MiB);
    pool.deallocate(a, second, 4 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: a trim gives back what is over by then, beside a block that is out") {
    world const here(device::config{}.eager());
    stream a;
    on_device pool;
    void* const live = pool.write(a, 2 * MiB);
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess); // nobody has asked about its event since
    CHECK(pool->trim() == 2 * MiB);
    CHECK(pool->reserved_bytes() == 2 * MiB);
    pool.deallocate(a, live, 2 * MiB);
    check_all_returns(pool);
}

TEST_CASE_TEMPLATE("after_event: a second use keeps the block", Pool, staging, on_device) {
    world const here;
    stream a, b;
    Pool pool;
    void* const p = pool.allocate(a, 1 * MiB);
    CHECK(device::launch(b, {}, {{p, 1 * MiB}}) == cudaSuccess);
    pool->last_used_on(p, b);
    b.destroy();
    pool.deallocate(a, p, 1 * MiB);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    void* const q = pool.write(a, 1 * MiB);
    CHECK(q != p);
    pool.deallocate(a, q, 1 * MiB);
    void* const r = pool->allocate_sync(1 * MiB); // a chunk of its own
    pool->used_on(r, a);
    pool->deallocate_sync(r, 1 * MiB);
    device::drain();
    check_all_returns(pool);
}

TEST_CASE("after_event: the host's frees need no event") {
    world const here;
    stream a;
    on_device pool;
    void* const p = pool->allocate_sync(1 * MiB);
    tally const calls;
    pool->deallocate_sync(p, 1 * MiB);
    CHECK(pool->allocate_sync(1 * MiB) == p);
    pool->deallocate_sync(p, 1 * MiB);
    CHECK(calls.records() + calls.queries() + calls.host_waits() == 0);
    void* const q = pool.write(a, 1 * MiB);
    CHECK(q == p);
    pool.deallocate(a, q, 1 * MiB);
    void* const r = pool.allocate(on_host, 1 * MiB); // nothing in flight uses it
    CHECK(r != q);
    pool.deallocate(on_host, r, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: events are made once and used again") {
    for (int devices : {1, 2}) {
        CAPTURE(devices);
        world const here(device::config{}.eager().with_devices(devices));
        staging pool;
        for (int round = 0; round < 50; ++round)
            for (int device = 0; device < devices; ++device) {
                REQUIRE(cudaSetDevice(device) == cudaSuccess);
                stream a;
                void* const p = pool.write(a, 1 * MiB);
                pool.deallocate(a, p, 1 * MiB);
            }
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        CHECK(device::calls("cudaEventCreateWithFlags") <= 4u * static_cast<unsigned>(devices));
        check_all_returns(pool);
    }
}

TEST_CASE("after_event: only frees with an event are kept for later ones") {
    world const here(device::config{}.eager());
    stream a;
    staging pool;
    for (int i = 0; i < 300; ++i) { // the host's, which wait for a second use
        void* const p = pool.allocate(on_host, 4 * KiB);
        pool->used_on(p, a);
        pool.deallocate(on_host, p, 4 * KiB);
    }
    pool->settle();
    for (bool first : {true, false}) {
        std::uint64_t const before = device::calls("cudaEventCreateWithFlags");
        void* blocks[8];
        for (void*& each : blocks)
            each = pool.write(a, 4 * KiB);
        for (void* each : blocks)
            pool.deallocate(a, each, 4 * KiB);
        pool->settle();
        CHECK(device::calls("cudaEventCreateWithFlags") - before == (first ? 8 : 0));
    }
    check_all_returns(pool);
}

TEST_CASE("after_event: of many events, as many are kept as later frees are likely to need") {
    world const here;
    stream a;
    on_device pool;
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i)
        blocks.push_back(pool.allocate(a, 512));
    for (void* each : blocks)
        pool.deallocate(a, each, 512);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    pool->settle();
    CHECK(device::calls("cudaEventCreateWithFlags") - device::calls("cudaEventDestroy") <= 256);
    check_all_returns(pool);
}

TEST_CASE("after_event: events are used again also after a wait that failed") {
    world const here;
    stream a;
    on_device pool;
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    device::fail_call("cudaEventSynchronize", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(pool->settle(), weir::cuda_error);
    pool->settle();
    std::uint64_t const before = device::calls("cudaEventCreateWithFlags");
    for (int round = 0; round < 20; ++round) {
        void* const q = pool.write(a, 2 * MiB);
        pool.deallocate(a, q, 2 * MiB);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    }
    CHECK(device::calls("cudaEventCreateWithFlags") - before <= 1);
    check_all_returns(pool);
}

TEST_CASE("after_event: long runs of frees do not pile up") {
    world const here(device::config{}.eager());
    stream a;
    on_device pool;
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i)
        blocks.push_back(pool.allocate(a, 4 * KiB));
    tally const calls;
    for (void* each : blocks)
        pool.deallocate(a, each, 4 * KiB);
    CHECK(calls.queries() <= 150);
    CHECK(device::calls("cudaEventCreateWithFlags") <= 400); // 256 are kept
    check_all_returns(pool);
}

TEST_CASE("after_event: work that is slow is not asked about again and again") {
    world const here;
    stream a, b;
    device::gate gate;
    on_device pool;
    std::vector<void*> blocks;
    for (int i = 0; i < 600; ++i)
        blocks.push_back(pool.allocate(a, 4 * KiB));
    CHECK(gate.close(a) == cudaSuccess);
    tally const calls;
    for (void* each : blocks)
        pool.deallocate(a, each, 4 * KiB);
    std::uint64_t const of_frees = calls.queries();
    void* const q = pool.allocate(b, 64 * MiB); // nothing is free: one question says so
    std::uint64_t const of_all = calls.queries();
    gate.open(); // first: the pool's end would wait for it where a check ends the case
    CHECK(of_frees <= 10);
    CHECK(of_all <= 12);
    pool.deallocate(b, q, 64 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: what the host frees is kept from everybody while a stream uses it") {
    for (long failing = -1; failing < 4; ++failing) { // allocations of the host that work, before one that does not
        CAPTURE(failing);
        world const here;
        stream a;
        weir::reuse::after_event::over<weir::placement::best_fit<>> rule(0);
        rule.add(weir::base::range{1 << 20, 1 << 20}, weir::on_host);
        weir::base::range const block = rule.take(512, 512, weir::on_host);
        device::gate gate;
        CHECK(gate.close(a) == cudaSuccess);
        rule.last_used_on(block, a);
        if (failing < 0) {
            rule.give(block, weir::on_host);
        } else {
            support::failing_new const fails(failing);
            rule.give(block, weir::on_host);
        }
        CHECK_FALSE(rule.take(1 << 20, 512, weir::on_host));
        gate.open();
        rule.settle();
        CHECK(bool(rule.take(1 << 20, 512, weir::on_host)) == (rule.used().lost_bytes == 0));
    }
}

TEST_CASE("after_event: several pending frees on a stream of another device have its events") {
    world const here(device::config{}.late().with_devices(2));
    weir::reuse::after_event::over<weir::placement::best_fit<>> rule(weir::any_device);
    rule.add(weir::base::range{1 << 20, 1 << 20}, weir::on_host);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    {
        stream far;
        std::vector<weir::base::range> blocks;
        for (int i = 0; i < 4; ++i)
            blocks.push_back(rule.take(512, 512, weir::on_host));
        for (weir::base::range const& each : blocks)
            rule.give(each, far);
        CHECK(cudaStreamSynchronize(far) == cudaSuccess);
        CHECK(rule.take(1 << 20, 512, weir::on_host).bytes == 1 << 20); // with no wait for the device
    }
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("after_event: a captured stream is refused, and its capture goes on") {
    world const here;
    stream a, b;
    on_device pool;
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK_THROWS_WITH_AS(static_cast<void>(pool.allocate(a, 1 * MiB)), doctest::Contains("do it before the capture begins"),
                         usage_error);
    void* const p = pool.allocate(b, 1 * MiB);
    pool.deallocate(b, p, 1 * MiB);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    pool->settle();
}

TEST_CASE("after_event: what a captured stream frees is not handed out while the graph lives") {
    world const here;
    stream a, b;
    on_device pool;
    void* const p = pool.allocate(a, 1 * MiB);
    void* const q = pool.allocate(a, 2 * MiB);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(device::launch(a, {}, {{p, 1 * MiB}}) == cudaSuccess);
    tally const calls;
    CHECK_THROWS_AS(pool->used_on(p, a), usage_error);
    pool.deallocate(a, p, 1 * MiB);
    CHECK(calls.records() == 0);
    // On another stream the pool goes about its business.
    pool.deallocate(b, q, 2 * MiB);
    void* const r = pool.write(b, 2 * MiB);
    pool.deallocate(b, r, 2 * MiB);
    REQUIRE(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    pool->settle();
    for (int i = 0; i < 3; ++i) {
        void* const s = pool.write(a, 1 * MiB);
        CHECK(s != p);
        pool.deallocate(a, s, 1 * MiB);
    }
    CHECK(cudaGraphLaunch(exec, b) == cudaSuccess);
    pool->settle();
    CHECK(pool->in_use_bytes() == 0);
    CHECK(pool->state().lost_bytes == 1 * MiB);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("after_event: the legacy stream's frees outlast the capture of a blocking stream") {
    world const here;
    stream a(cudaStreamDefault);
    on_device pool;
    void* const p = pool.write(cudaStreamLegacy, 1 * MiB);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    pool.deallocate(cudaStreamLegacy, p, 1 * MiB);
    REQUIRE(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    void* const q = pool.write(cudaStreamLegacy, 1 * MiB);
    CHECK(q != p);
    pool.deallocate(cudaStreamLegacy, q, 1 * MiB);
    check_all_returns(pool);
}

TEST_CASE("after_event: a stream of another device has events of its own") {
    world const here(device::config{}.late().with_devices(2));
    stream a;
    on_device pool(pool_options{}.limit(2 * MiB));
    void* const p = pool.write(a, 2 * MiB);
    pool.deallocate(a, p, 2 * MiB);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(pool.write(a, 2 * MiB) == p); // and the event of that free is there for another
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    stream far;
    CHECK(device::launch(far, {}, {{p, 2 * MiB}}) == cudaSuccess);
    pool.deallocate(far, p, 2 * MiB);
    tally const calls;
    CHECK(pool.write(a, 2 * MiB) == p);
    CHECK(calls.of("cudaEventSynchronize") == 1);
    CHECK(calls.device_waits() == 0);
    pool.deallocate(a, p, 2 * MiB);
    check_all_returns(pool);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("after_event: a pool that ends waits for uses on another device") {
    for (bool const second : {false, true}) {
        CAPTURE(second);
        world const here(device::config{}.late().with_devices(2));
        stream a;
        REQUIRE(cudaSetDevice(1) == cudaSuccess);
        REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
        stream far;
        REQUIRE(cudaSetDevice(0) == cudaSuccess);
        {
            on_device pool;
            void* const p = pool.allocate(a, 2 * MiB);
            CHECK(device::launch(far, {}, {{p, 2 * MiB}}) == cudaSuccess);
            if (second)
                pool->used_on(p, far);
            pool.deallocate(second ? a : far, p, 2 * MiB);
            CHECK(device::pending() != 0);
        }
        CHECK(device::pending() == 0);
    }
}

TEST_CASE_TEMPLATE("after_event: a free on a stream that is no more is kept until settle", Pool, staging, on_device) {
    world const here(device::config{}.late().with_devices(2));
    stream a, b;
    Pool pool;
    void* const live = pool.write(a, 1 * MiB);
    void* const p = pool.write(a, 1 * MiB);
    pool->used_on(p, a);
    cudaStream_t const gone = b;
    b.destroy();
    pool->deallocate(gone, p, 1 * MiB); // against the rules
    device::note_free(p, 1 * MiB, a);
    CHECK(pool->in_use_bytes() == 1 * MiB);
    pool->trim();
    CHECK(pool->reserved_bytes() > 1 * MiB);
    pool.deallocate(a, live, 1 * MiB);
    check_all_returns(pool);
    CHECK(!device::reports(device::finding::destroyed_handle).empty());
    device::clear_reports();
}

TEST_CASE("after_event: 'settle' waits for the uses of what came back without a stream, on whatever device they are") {
    world const here(device::config{}.late().with_devices(2));
    stream b;
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    stream far;
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    weir::reuse::after_event::over<weir::placement::best_fit<>> rule(0);
    rule.add(weir::base::range{1 << 20, 1 << 20}, on_host);
    weir::base::range const block = rule.take(1 << 20, 512, on_host);
    REQUIRE(block);
    CHECK(device::launch(far, {}, {}) == cudaSuccess);
    rule.used_on(block, far);
    cudaStream_t const gone = b;
    b.destroy();
    rule.give(block, gone); // against the rules
    CHECK_FALSE(rule.take(512, 512, on_host));
    CHECK(device::pending() != 0);
    rule.settle();
    CHECK(device::pending() == 0);
    CHECK(rule.take(1 << 20, 512, on_host) == block);
    device::clear_reports();
}

TEST_CASE("after_event: 'settle' waits for a block without an event, and breaks no capture of another stream") {
    world const here;
    stream a, b, c;
    on_device pool;
    void* const p = pool.allocate(a, 2 * MiB);
    CHECK(device::launch(b, {}, {{p, 2 * MiB}}) == cudaSuccess);
    pool->used_on(p, b);
    device::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
    pool.deallocate(a, p, 2 * MiB); // only the end of all work tells when it is free
    CHECK(device::failed_calls() == 1);
    void* const q = pool.write(a, 1 * MiB);
    pool.deallocate(a, q, 1 * MiB); // an event tells
    support::capture graph(c);
    CHECK_NOTHROW(pool->settle());
    CHECK(graph.unbroken());
    check_all_returns(pool);
}

TEST_CASE("after_event: what comes back without a stream while 'settle' waits is kept where it fails") {
    static std::function<void()> meanwhile;
    world const here;
    stream a, b;
    on_device pool;
    void* const p = pool.allocate(a, 1 * MiB);
    void* const q = pool.allocate(a, 1 * MiB);
    cudaStream_t const gone = b;
    b.destroy();
    pool->deallocate(gone, p, 1 * MiB); // against the rules
    device::note_free(p, 1 * MiB, a);
    meanwhile = [&] {
        pool->deallocate(gone, q, 1 * MiB);
        device::note_free(q, 1 * MiB, a);
    };
    device::at_switch_points([] {
        if (auto const once = std::exchange(meanwhile, nullptr))
            once();
    });
    device::fail_call("cudaFree", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(pool->settle(), weir::cuda_error);
    device::at_switch_points(nullptr);
    CHECK_FALSE(meanwhile);
    CHECK(pool->in_use_bytes() == 0);
    CHECK(pool->state().lost_bytes == 0);
    check_all_returns(pool);
    device::clear_reports();
}

TEST_CASE("after_event: a thread that waits at the limit stands in nobody's way") {
    for (std::uint64_t seed = 1; seed <= 150; ++seed)
        stage::check_waits_in_nobodys_way<pool_of<weir::reuse::after_event>>(seed, [](auto& pool) { pool->settle(); });
}

TEST_CASE("after_event: threads in turn") {
    std::atomic<unsigned> taken{0};
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        world const here(device::config{}.random(seed));
        stream a, b;
        in_slabs pool(pool_options{}.limit(4 * MiB));
        auto const loop = [&](cudaStream_t on, std::size_t bytes) {
            for (int i = 0; i < 12; ++i)
                if (void* const p = pool.try_allocate(on, bytes)) {
                    taken.fetch_add(1);
                    CHECK(device::launch(on, {}, {{p, bytes}}) == cudaSuccess);
                    pool.deallocate(on, p, bytes);
                }
        };
        device::run_threads({[&] { loop(a, 2 * MiB); }, [&] { loop(b, 1 * KiB); }, [&] { loop(a, 1 * MiB); }});
        check_all_returns(pool);
    }
    CHECK(taken > 60 * 24);
}

TEST_CASE_TEMPLATE("after_event: real threads", Pool, staging, in_slabs) {
    world const here(device::config{}.eager());
    stream streams[2];
    Pool pool(pool_options{}.limit(16 * MiB));
    std::atomic<unsigned> taken{0};
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            for (unsigned i = 0; i < 300; ++i) {
                cudaStream_t const on = (i + thread) % 3 == 0 ? cudaStreamPerThread
                                                              : static_cast<cudaStream_t>(streams[(i ^ thread) % 2]);
                std::size_t const bytes = 1 + (i * 7919 + thread * 104729) % (i % 5 == 0 ? 4 * MiB : 16 * KiB);
                if (void* const p = pool.try_allocate(on, bytes)) {
                    taken.fetch_add(1);
                    if (i % 8 == 0)
                        pool->used_on(p, streams[thread % 2]);
                    pool.deallocate(on, p, bytes);
                }
                if (i % 60 == 59)
                    pool->settle();
                if (i % 70 == 69)
                    pool->trim(4 * MiB);
                if (i % 30 == 29)
                    CHECK(pool->state().reserved_bytes <= 16 * MiB);
            }
        });
    for (std::thread& each : threads)
        each.join();
    CHECK(taken.load() > 600);
    check_all_returns(pool);
}

#endif
