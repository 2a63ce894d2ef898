// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "open_bytes.hpp"
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <weir/container/owned/contents.hpp>

TEST_CASE_TEMPLATE("contents: write, read and zero", Bytes, device_bytes, pinned_bytes) {
    support::every_schedule([] {
        support::scoped_stream a;
        typename Bytes::pool_type pool;
        Bytes x(pool, a, counting(20));
        x.write_value(4, 0xCBCAC9C8u);
        unsigned char read[4] = {};
        x.read(2, read, 4);
        weir::synchronize(a);
        CHECK(read[1] == 3);
        CHECK(read[2] == 0xC8);
        CHECK(x.template value_sync_at<unsigned>(4) == 0xCBCAC9C8u);
        CHECK(x.contents()[8] == 8);
        x.reserve_bytes(30);
        x.zero_bytes();
        CHECK(x.contents() == octets(20, 0));
    });
}

TEST_CASE_TEMPLATE("contents: copies across streams and pools are snapshots", Pool, support::recording_pool<>,
                   support::following_pool<>) {
    support::every_schedule([] {
        support::scoped_stream a, b;
        Pool one, other;
        device_bytes y(other, b, counting(3, 77));
        {
            device_bytes x(one, a, counting(200));
            y.append_bytes(x);
            x.zero_bytes(); // behind the copy
            x.write_value(0, '\x09');
            y.assign_bytes(x); // into a block that is large enough, and fresh all the same
            x.assign_bytes(counting(200));
            y.append_bytes(x);
        } // freed, and poisoned, behind the copies
        CHECK(y.contents() == joined(joined({9}, octets(199, 0)), counting(200)));
        CHECK(one.live_blocks() == 0);
    });
}

TEST_CASE("contents: device blocks copy from pinned ones, and pinned from pinned") {
    support::every_schedule([] {
        support::scoped_stream a, b;
        support::recording_pool<> pool;
        pinned_bytes::pool_type pinned;
        device_bytes x(pool, a, 0);
        pinned_bytes z(pinned, a, 0);
        {
            pinned_bytes y(pinned, b, counting(100));
            z.assign_bytes(y);
            z.append_bytes(y);
            x.append_bytes(y);
        } // freed behind the copy
        x.append_bytes(z);
        CHECK(z.contents() == joined(counting(100), counting(100)));
        CHECK(x.contents() == joined(counting(100), z.contents()));
    });
}

TEST_CASE("contents: while the stream is captured, they are not read, and no address of the stack is kept") {
    support::every_schedule([] {
        support::scoped_stream a;
        support::recording_pool<> pool;
        device_bytes x(pool, a, counting(10));
        weir::synchronize(a);
        weir::check_cuda(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        x.zero_bytes();
        char value = 1;
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { x.write_value(0, value); }), "keeps the address of the value");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { x.read_sync(0, &value, 1); }), "read after the graph has run");
        cudaGraph_t graph = nullptr;
        weir::check_cuda(cudaStreamEndCapture(a, &graph), "cudaStreamEndCapture"); // the capture is whole
        REQUIRE(graph != nullptr);
        cudaGraphExec_t run = nullptr;
        weir::check_cuda(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
        weir::check_cuda(cudaGraphLaunch(run, a), "cudaGraphLaunch");
        CHECK(x.contents() == octets(10, 0));
        weir::check_cuda(cudaGraphExecDestroy(run), "cudaGraphExecDestroy");
        weir::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}
