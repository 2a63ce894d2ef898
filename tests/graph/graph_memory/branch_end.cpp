// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/recording.hpp>
#include <weir/graph/graph_memory.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes.hpp>

using support::drain;
using support::fill;
using support::recording;
using weir::check_cuda;
using weir::KiB;
using weir::MiB;
using weir::order_after;

namespace {

constexpr std::size_t chunk = 2 * MiB; // what graph memory gets at least
constexpr std::size_t block = chunk - KiB;

// Three streams of one capture, which two branches run on.
struct branches {
    support::scoped_stream s, t, u;
    weir::device_pool pool;
    weir::graph_memory<weir::device_pool> memory{pool};
    recording graph{s};

    branches() {
        order(t, s);
        order(u, s);
    }
    static void order(cudaStream_t later, cudaStream_t earlier) { order_after(later, earlier); }
    // A block that is written on the stream.
    void* take(cudaStream_t on, std::size_t bytes = block) {
        void* const p = memory.allocate(on, bytes);
        fill(p, 1, bytes, on);
        return p;
    }
    void give(cudaStream_t on, void* p, std::size_t bytes = block) { memory.deallocate(on, p, bytes); }
    ~branches() {
        order(s, t);
        order(s, u);
        graph.end();
        for (int i = 0; i < 2; ++i)
            graph.launch(s);
        drain(s);
        memory.release(s);
        CHECK(pool.in_use_bytes() == 0);
    }
};

// What comes next on the stream comes behind that node alone; null: behind none.
void send(cudaStream_t on, cudaGraphNode_t behind) {
    std::size_t const count = behind ? 1 : 0;
#if CUDART_VERSION >= 13000
    check_cuda(cudaStreamUpdateCaptureDependencies(on, &behind, nullptr, count, cudaStreamSetCaptureDependencies), "send");
#else
    check_cuda(cudaStreamUpdateCaptureDependencies(on, &behind, count, cudaStreamSetCaptureDependencies), "send");
#endif
}
// The last node of the stream.
cudaGraphNode_t end_of(cudaStream_t on) {
    auto const end = weir::graph::detail::branch_end::of(on);
    REQUIRE(end.nodes().size() == 1);
    return end.nodes()[0];
}

} // namespace

TEST_CASE("branch_end: a stream that waited for a branch has what the branch freed, also behind later work of both") {
    support::every_schedule([] {
        branches on;
        void* const p = on.take(on.t);
        on.give(on.t, p);
        void* const q = on.take(on.s); // beside the branch
        CHECK(q != p);
        void* const other = on.take(on.u, 64 * KiB);
        fill(other, 2, 64 * KiB, on.u);
        branches::order(on.t, on.u);
        fill(other, 3, 64 * KiB, on.t); // the branch goes on
        branches::order(on.s, on.t);
        fill(q, 4, block, on.s);
        void* const r = on.take(on.s);
        CHECK(r == p);
        CHECK(on.memory.reserved_bytes() == 3 * chunk);
        for (void* const each : {q, r})
            on.give(on.s, each);
        on.give(on.t, other, 64 * KiB);
    });
}

TEST_CASE("branch_end: branches that begin behind one node join as others do") {
    support::every_schedule([] {
        branches on;
        on.give(on.s, on.take(on.s)); // the node
        branches::order(on.t, on.s);
        branches::order(on.u, on.s);
        void* const a = on.take(on.t);
        void* const b = on.take(on.u);
        CHECK(a != b);
        on.give(on.t, a);
        on.give(on.u, b);
        branches::order(on.s, on.t);
        branches::order(on.s, on.u);
        void* const c = on.take(on.s);
        void* const d = on.take(on.s);
        CHECK(on.memory.reserved_bytes() == 2 * chunk);
        on.give(on.s, c);
        on.give(on.s, d);
    });
}

TEST_CASE("branch_end: what a branch freed after the join is no other stream's") {
    support::every_schedule([] {
        branches on;
        void* const p = on.take(on.t);
        branches::order(on.s, on.t);
        fill(p, 2, block, on.t);
        on.give(on.t, p);
        void* const q = on.take(on.s);
        CHECK(q != p);
        on.give(on.s, q);
        CHECK(on.memory.reserved_bytes() == 2 * chunk);
    });
}

TEST_CASE("branch_end: bytes that a branch joined with its own go on only behind both") {
    support::every_schedule([] {
        branches on;
        constexpr std::size_t part = 768 * KiB;
        void* const p = on.take(on.t, part);
        void* const q = on.take(on.u, part); // the neighbour
        CHECK(q == static_cast<char*>(p) + part);
        on.give(on.t, p, part);
        branches::order(on.s, on.t); // which has nothing of the third stream's yet
        fill(q, 2, part, on.u);
        on.give(on.u, q, part);
        branches::order(on.t, on.u);
        void* const large = on.take(on.t, 1 * MiB); // more than each of them has: they join, and the rest is here
        CHECK(large == p);
        void* const other = on.take(on.s, 640 * KiB);
        CHECK(on.memory.reserved_bytes() == 2 * chunk);
        on.give(on.s, other, 640 * KiB);
        on.give(on.t, large, 1 * MiB);
    });
}

TEST_CASE("branch_end: a branch gets what it needs of another stream's bytes, and that one keeps the rest") {
    support::every_schedule([] {
        branches on;
        constexpr std::size_t large = 8 * MiB;
        for (int turn = 0; turn < 4; ++turn) {
            on.give(on.s, on.take(on.s, large), large);
            cudaStream_t const side = turn % 2 == 0 ? on.t : on.u;
            branches::order(side, on.s);
            on.give(side, on.take(side, 256), 256);
        }
        CHECK(on.memory.reserved_bytes() < 3 * large);
    });
}

TEST_CASE("branch_end: a stream that was sent elsewhere in its graph has what it freed there when it is back, and no sooner") {
    support::every_schedule([] {
        branches on;
        void* const p = on.take(on.s);
        on.give(on.s, p);
        cudaGraphNode_t const there = end_of(on.s);
        send(on.s, nullptr);
        void* const q = on.take(on.s);
        CHECK(q != p);
        on.give(on.s, q);
        send(on.s, there);
        CHECK(on.take(on.s) == p);
        on.give(on.s, p);
        send(on.s, nullptr);
        void* const r = on.take(on.s);
        CHECK((r != p && r != q));
        on.give(on.s, r);
        CHECK(on.memory.reserved_bytes() == 3 * chunk);
    });
}

TEST_CASE("branch_end: what a stream freed before it was sent elsewhere goes on only behind that") {
    support::every_schedule([] {
        branches on;
        void* const p = on.take(on.s);
        void* const small = on.memory.allocate(on.s, 512);
        on.give(on.s, p);
        send(on.s, nullptr);
        fill(small, 2, 512, on.s);
        on.give(on.s, small, 512);
        branches::order(on.t, on.s);
        void* const q = on.take(on.t);
        CHECK(q != p);
        on.give(on.t, q);
    });
}

TEST_CASE("branch_end: a stream finds its way back past a node that many come before") {
    support::every_schedule([] {
        support::scoped_stream const sides[20]; // more than are asked for at once
        branches on;
        void* const bytes = on.take(on.s, 512);
        void* const p = on.take(on.s);
        on.give(on.s, p);
        for (std::size_t i = 0; i < 20; ++i) {
            branches::order(sides[i], on.s);
            fill(static_cast<char*>(bytes) + i, 2, 1, sides[i]);
        }
        for (cudaStream_t const each : sides)
            branches::order(on.s, each);
        fill(bytes, 3, 512, on.s);
        CHECK(on.take(on.s) == p);
        on.give(on.s, p);
        on.give(on.s, bytes, 512);
    });
}

TEST_CASE("branch_end: a branch has the rest of another one's chunk, and what was freed before it began") {
    support::every_schedule([] {
        branches on;
        void* const p = on.take(on.s, 64 * KiB);
        void* const beside = on.take(on.t, 64 * KiB);
        CHECK(beside != p);
        on.give(on.s, p, 64 * KiB);
        branches::order(on.u, on.s);
        CHECK(on.take(on.u, 64 * KiB) == p);
        CHECK(on.memory.reserved_bytes() == chunk);
        on.give(on.u, p, 64 * KiB);
        on.give(on.t, beside, 64 * KiB);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("branch_end: where CUDA does not tell what comes before a node, nobody has another stream's bytes") {
    for (char const* const call : {"cudaStreamGetCaptureInfo", "cudaGraphNodeGetDependencies"}) {
        CAPTURE(call);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        branches on;
        void* const small = on.take(on.s, 512);
        void* const p = on.take(on.t);
        on.give(on.t, p);
        branches::order(on.s, on.t);
        fill(small, 2, 512, on.s);
        bool const ends = call[4] == 'S';
        for (std::uint64_t const each : {2u, 3u}) // the first one asks for the capture
            simulated_cuda::fail_call(call, ends ? each : each - 1, cudaErrorUnknown);
        void* const q = on.take(on.s);
        CHECK(simulated_cuda::failed_calls() == 2);
        CHECK(q != p);
        on.give(on.s, q);
        on.give(on.s, small, 512);
        CHECK(on.memory.reserved_bytes() == 2 * chunk);
    }
}

TEST_CASE("branch_end: where CUDA does not tell where a stream is, it has nothing of its own, and the bytes stay out") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    branches on;
    void* const p = on.take(on.s);
    on.give(on.s, p);
    auto const unknown = [] {
        for (std::uint64_t const each : {2u, 3u})
            simulated_cuda::fail_call("cudaStreamGetCaptureInfo", each, cudaErrorUnknown);
    };
    unknown();
    void* const q = on.take(on.s);
    CHECK(simulated_cuda::failed_calls() == 2);
    CHECK(q != p);
    CHECK(on.take(on.s) == p); // CUDA tells again
    unknown();
    on.give(on.s, p);
    CHECK(simulated_cuda::failed_calls() == 4);
    void* const r = on.take(on.s);
    CHECK((r != p && r != q));
    for (void* const each : {q, r})
        on.give(on.s, each);
}

TEST_CASE("branch_end: where the host has no memory to note a branch's end, its bytes stay out") {
    if (!support::host_memory_can_fail)
        return;
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    branches on;
    void* const p = on.take(on.s);
    {
        support::failing_new const fails(0);
        on.give(on.s, p);
    }
    void* const q = on.take(on.s);
    CHECK(q != p);
    on.give(on.s, q);
}
#endif
