// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

TEST_CASE("branch_end: bytes that a branch got from another one go on only behind both") {
    support::every_schedule([] {
        branches on;
        void* const p = on.take(on.u);
        void* const small = on.take(on.t, 64 * KiB);
        on.give(on.t, small, 64 * KiB);
        branches::order(on.s, on.t); // which has nothing of the third stream's yet
        on.give(on.u, p);
        branches::order(on.t, on.u);
        void* const large = on.memory.allocate(on.t, 3 * chunk); // more than both have: the third one's bytes are here now
        void* const q = on.take(on.s);
        CHECK(q != p);
        on.give(on.s, q);
        on.give(on.t, large, 3 * chunk);
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
        void* const p = on.take(on.t);
        on.give(on.t, p);
        branches::order(on.s, on.t);
        bool const ends = call[4] == 'S';
        simulated_cuda::fail_call(call, ends ? 2 : 1, cudaErrorUnknown); // the first one asks for the capture
        void* const q = on.take(on.s);
        CHECK(simulated_cuda::failed_calls() == 1);
        CHECK(q != p);
        on.give(on.s, q);
        CHECK(on.memory.reserved_bytes() == 2 * chunk);
    }
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
