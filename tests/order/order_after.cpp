// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/sentence.hpp>
#include <vector>
#include <weir/order/order_after.hpp>

using weir::check_cuda;

TEST_CASE("order_after: later work sees what was enqueued earlier on another stream") {
    support::every_schedule([] {
        support::scoped_stream a, b, c;
        std::size_t const bytes = std::size_t{1} << 20;
        void *from = nullptr, *to = nullptr;
        check_cuda(cudaMalloc(&from, bytes), "cudaMalloc");
        check_cuda(cudaMalloc(&to, bytes), "cudaMalloc");
        for (int value = 1; value <= 5; ++value) {
            check_cuda(cudaMemsetAsync(from, value, bytes, a), "cudaMemsetAsync");
            weir::order_after(b, a);
            check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b), "cudaMemcpyAsync");
            weir::order_after(c, b); // orders add up
            std::vector<unsigned char> host(bytes);
            check_cuda(cudaMemcpyAsync(host.data(), to, bytes, cudaMemcpyDefault, c), "cudaMemcpyAsync");
            check_cuda(cudaStreamSynchronize(c), "cudaStreamSynchronize");
            CHECK(host == std::vector<unsigned char>(bytes, static_cast<unsigned char>(value)));
            weir::order_after(a, c);
        }
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        check_cuda(cudaFree(from), "cudaFree");
        check_cuda(cudaFree(to), "cudaFree");
    });
}

TEST_CASE("order_after: a stream is after itself at no cost, and the default streams are streams") {
    support::every_schedule([] {
        support::scoped_stream a;
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
#endif
        weir::order_after(a, a);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == before);
#endif
        weir::order_after(a, cudaStream_t{});
        weir::order_after(cudaStreamPerThread, a);
        weir::order_after(cudaStreamLegacy, cudaStreamPerThread);
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE("order_after: the host is no stream, whichever of the two it is to be") {
    support::scoped_stream const s;
    using weir::on_host;
    CHECK_THROWS_AS(weir::order_after(s, on_host), weir::usage_error);
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { weir::order_after(on_host, s); }), "use 'weir::synchronize(stream)'");
    CHECK_THROWS_AS(weir::order_after(on_host, on_host), weir::usage_error);
}

TEST_CASE("order_after: the earlier stream may end at once") {
    support::every_schedule([] {
        support::scoped_stream b;
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, 4096), "cudaMalloc");
        {
            support::scoped_stream a;
            check_cuda(cudaMemsetAsync(p, 7, 4096, a), "cudaMemsetAsync");
            weir::order_after(b, a);
        }
        unsigned char last = 0;
        check_cuda(cudaMemcpyAsync(&last, static_cast<char*>(p) + 4095, 1, cudaMemcpyDefault, b),
              "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(b), "cudaStreamSynchronize");
        CHECK(last == 7);
        check_cuda(cudaFree(p), "cudaFree");
    });
}

TEST_CASE("order_after: every call of CUDA may fail, and is reported") {
    struct two {
        support::scoped_stream a, b;
    };
    auto const broken = support::each_fault([] { return std::make_unique<two>(); },
                                            [](two& s) { weir::order_after(s.b, s.a); },
                                            [](two& s, bool) { weir::order_after(s.b, s.a); });
    static_cast<void>(broken);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(broken >= 8); // device, create, record, wait and destroy, once and for ever
#endif
}

TEST_CASE("order_after: a captured stream is not made to wait for work outside its graph, and its capture lives on") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        check_cuda(cudaStreamBeginCapture(b, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        CHECK_THROWS_AS(weir::order_after(b, a), weir::usage_error);
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(b, &graph) == cudaSuccess);
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}

TEST_CASE("order_after: the legacy stream is refused while a captured stream waits for it, and the capture lives on") {
    support::every_schedule([] {
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        support::scoped_stream apart;
        {
            support::capture graph(blocking);
            CHECK_THROWS_AS(weir::order_after(apart, cudaStreamLegacy), weir::usage_error);
            CHECK_THROWS_AS(weir::order_after(cudaStreamLegacy, apart), weir::usage_error);
            CHECK(graph.unbroken());
        }
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    });
}

TEST_CASE("order_after: what is captured is waited for by its own graph alone, and a refusal breaks no capture") {
    support::every_schedule([] {
        support::scoped_stream const a, b, c;
        {
            support::capture graph(a);
            CHECK_THROWS_AS(weir::order_after(cudaStreamLegacy, a), weir::usage_error);
            CHECK(graph.unbroken());
        }
        support::capture one(a), other(b);
        CHECK_THROWS_AS(weir::order_after(a, b), weir::usage_error);
        weir::order_after(c, b); // c is of b's graph from now on
        CHECK(weir::runtime::is_capturing(c));
        weir::order_after(b, c);
        CHECK(one.unbroken());
        CHECK(other.unbroken());
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("order_after: a fork of a capture on another device than the memory's is a fork like others") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const s, t;
    support::capture graph(s);
    weir::order_after(weir::order::placed_stream{t, 0}, weir::order::placed_stream{s, 0});
    CHECK(weir::runtime::is_capturing(t));
    weir::order_after(weir::order::placed_stream{s, 0}, weir::order::placed_stream{t, 0});
    CHECK(graph.unbroken());
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("order_after: a graph of several devices is captured whichever device is current, and on another one it is refused") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(4), support::report_all);
    std::vector<cudaStream_t> streams(4);
    for (int i = 0; i < 3; ++i) { // device 3 is not used
        check_cuda(cudaSetDevice(i), "cudaSetDevice");
        check_cuda(cudaStreamCreateWithFlags(&streams[static_cast<std::size_t>(i)], cudaStreamNonBlocking), "cudaStreamCreate");
    }
    for (int const current : {0, 1, 2}) {
        CAPTURE(current);
        check_cuda(cudaSetDevice(current), "cudaSetDevice");
        support::capture graph(streams[1]);
        weir::order_after(streams[2], streams[1]);
        weir::order_after(streams[0], streams[2]);
        simulated_cuda::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
        CHECK_THROWS_AS(weir::order_after(streams[0], streams[1]), weir::cuda_error);
        simulated_cuda::fail_call("cudaEventRecord", 1, cudaErrorInvalidResourceHandle, simulated_cuda::lasting::for_ever);
        CHECK_SAYS(support::sentence_of<weir::cuda_error>([&] { weir::order_after(streams[0], streams[1]); }),
                   "the stream or event was destroyed, or belongs to another device");
        simulated_cuda::clear_faults();
        weir::order_after(streams[1], streams[0]);
        CHECK(graph.unbroken());
        int now = -1;
        check_cuda(cudaGetDevice(&now), "cudaGetDevice");
        CHECK(now == current);
    }
    for (int i = 0; i < 3; ++i)
        check_cuda(cudaStreamDestroy(streams[static_cast<std::size_t>(i)]), "cudaStreamDestroy");
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("order_after: a default stream is its device's, whichever is current") {
    for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread}) {
        simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
        weir::order::placed_stream const first{each, 0}, second{each, 1};
        CHECK(first != second);
        CHECK(weir::order::placed_stream{each, 0} == first);
        support::scoped_stream const s;
        CHECK(weir::order::placed_stream{s, 0} == weir::order::placed_stream{s, 1}); // one stream, whatever device is named
        simulated_cuda::gate gate;
        REQUIRE(gate.close(each) == cudaSuccess); // device 0's
        weir::order_after(second, first);
        check_cuda(cudaSetDevice(1), "cudaSetDevice");
        CHECK(cudaStreamQuery(each) == cudaErrorNotReady);
        gate.open();
        check_cuda(cudaStreamSynchronize(each), "cudaStreamSynchronize");
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        CHECK(cudaStreamQuery(each) == cudaSuccess);
    }
}
#endif
