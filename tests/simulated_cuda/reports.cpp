// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every finding about the bytes of a pool, seen: what is wrong is reported at the call that did it, once,
// under every schedule; and its nearest right neighbour is not.

#include "reports.hpp"

using namespace reporting;

TEST_CASE("reports: reuse in flight on another stream") {
    finds(finding::reuse_in_flight, [](stage& on) {
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        on.allocate(on.b);
    });
}

TEST_CASE("reports: a free alone stands for all its stream was given") {
    finds(finding::reuse_in_flight, [](stage& on) {
        on.write(on.a, 4096);
        on.allocate(on.a);
        on.free(on.a);
        on.allocate(on.b);
    });
}

TEST_CASE("reports: reuse on the same stream, and behind an event, a query or a wait, is right") {
    finds_nothing([](stage& on) {
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        on.order(on.a, on.b);
        on.allocate(on.b);
        on.write(on.b);
        on.free(on.b);
        CHECK(cudaStreamSynchronize(on.b) == cudaSuccess);
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        while (cudaStreamQuery(on.a) != cudaSuccess) {
        }
        sim::note_allocate_host(on.p, 256);
        sim::note_free_host(on.p, 256);
        on.allocate(on.b);
        on.write(on.b);
        on.free(on.b);
    });
}

TEST_CASE("reports: an event dropped when bytes change streams twice") {
    finds(finding::reuse_in_flight, [](stage& on) {
        cudaStream_t c = nullptr;
        REQUIRE(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking) == cudaSuccess);
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        // b's pool takes the bytes over without waiting, and hands them to c, which waits for b alone.
        on.allocate(on.b, 8192);
        on.write(on.b, 8192);
        on.order(on.b, c);
        on.allocate(c);
    });
}

TEST_CASE("reports: a handle taken for an identity") {
    finds(finding::reuse_in_flight, [](stage& on) {
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        CHECK(cudaStreamDestroy(on.a) == cudaSuccess);
        cudaStream_t fresh = nullptr;
        CHECK(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking) == cudaSuccess);
        CHECK(fresh == on.a);
        on.allocate(fresh);
    });
}

TEST_CASE("reports: a wait for an event that was recorded too early") {
    finds(finding::reuse_in_flight, [](stage& on) {
        on.allocate(on.a);
        CHECK(cudaEventRecord(on.event, on.a) == cudaSuccess);
        on.write(on.a);
        on.free(on.a);
        CHECK(cudaStreamWaitEvent(on.b, on.event, 0) == cudaSuccess);
        on.allocate(on.b);
    });
}

TEST_CASE("reports: the host takes bytes that are in flight") {
    finds(finding::reuse_in_flight, [](stage& on) {
        on.allocate(on.a);
        on.write(on.a);
        on.free(on.a);
        sim::note_allocate_host(on.p, 256);
    });
}

TEST_CASE("reports: a free that promises too much") {
    finds(finding::early_free, [](stage& on) {
        on.allocate(on.a);
        on.write(on.a);
        sim::note_free_host(on.p, 256);
    });
}

TEST_CASE("reports: two streams write a block with nothing between") {
    finds(finding::use_in_flight, [](stage& on) {
        on.write(on.a);
        on.write(on.b);
    });
    finds(finding::use_in_flight, [](stage& on) {
        on.write(on.a);
        on.read(on.b, 128, 4);
    });
    finds(finding::use_in_flight, [](stage& on) {
        on.read(on.a);
        on.write(on.b);
    });
}

TEST_CASE("reports: two streams read, and write apart, and write in order") {
    finds_nothing([](stage& on) {
        on.write(on.a);
        on.order(on.a, on.b);
        on.read(on.a);
        on.read(on.b);
        on.order(on.b, on.a);
        on.write(on.a);
        on.write(on.a, 4096);
        on.write(on.b, 4096 + 256);
    });
}

TEST_CASE("reports: a block of a later life on a stream that did not wait") {
    finds(finding::use_in_flight, [](stage& on) {
        on.allocate(on.a);
        on.read(on.a);
        on.free(on.a);
        on.allocate(on.a);
        on.read(on.b);
    });
}

TEST_CASE("reports: use after a block was given back") {
    finds(finding::use_after_free, [](stage& on) {
        on.allocate(on.a);
        on.free(on.a);
        on.write(on.a);
    });
}

TEST_CASE("reports: use beyond a block") {
    finds(finding::out_of_bounds, [](stage& on) {
        on.allocate(on.a);
        on.write(on.a, 0, 257);
    });
}

TEST_CASE("reports: use of what was never allocated, and of what the driver took back") {
    finds(finding::use_before_allocation, [](stage& on) { on.write(on.a, std::size_t(1) << 30); });
    finds(finding::use_before_allocation, [](stage& on) { on.write(on.a, (1 << 16) - 128); });
    finds(finding::use_after_free, [](stage& on) {
        CHECK(cudaFree(on.p) == cudaSuccess);
        on.write(on.a);
    });
}

TEST_CASE("reports: a pool that goes on with a chunk that it released") {
    finds(finding::use_after_free, [](stage& on) {
        on.allocate(on.a);
        on.free(on.a);
        CHECK(cudaFree(on.p) == cudaSuccess);
        on.allocate(on.a);
    });
}

TEST_CASE("reports: bytes handed out twice") {
    finds(finding::handed_out_twice, [](stage& on) {
        on.allocate(on.a, 0, 512);
        on.allocate(on.a, 256, 512);
    });
}

TEST_CASE("reports: bad frees") {
    finds(finding::bad_free, [](stage& on) {
        on.allocate(on.a);
        on.free(on.a);
        on.free(on.a);
    });
    finds(finding::bad_free, [](stage& on) {
        on.allocate(on.a);
        on.free(on.a, 0, 128);
    });
    finds(finding::bad_free, [](stage& on) { on.free(on.a); });
}
