// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <thread>
#include <weir/runtime/stream_queries.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using weir::query_capture;
using weir::query_id;

namespace {

struct answers {
    unsigned long long id = 0;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t id_error;
    cudaError_t capture_error;

    explicit answers(cudaStream_t stream)
        : id_error(query_id(stream, &id)), capture_error(query_capture(stream, &status)) {}
};

void same_as_the_runtime(cudaStream_t stream) {
    answers const asked(stream);
    unsigned long long id = 0;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusInvalidated;
    CHECK(cudaStreamGetId(stream, &id) == asked.id_error);
    CHECK(cudaStreamIsCapturing(stream, &status) == asked.capture_error);
    CHECK(asked.id_error == cudaSuccess);
    CHECK(asked.capture_error == cudaSuccess);
    CHECK(asked.id == id);
    CHECK(asked.status == status);
}

} // namespace

TEST_CASE("stream_queries: the default streams are known by their handles") {
    CHECK(weir::is_default_handle(nullptr));
    CHECK(weir::is_default_handle(cudaStreamLegacy));
    CHECK(weir::is_default_handle(cudaStreamPerThread));
    int anything = 0;
    CHECK_FALSE(weir::is_default_handle(reinterpret_cast<cudaStream_t>(&anything)));
}

TEST_CASE("stream_queries: the answers are the runtime's, for every kind of stream") {
    support::every_schedule([] {
        cudaStream_t blocking = nullptr;
        cudaStream_t free_running = nullptr;
        REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
        REQUIRE(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking) == cudaSuccess);
        for (cudaStream_t stream : {blocking, free_running, cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread})
            same_as_the_runtime(stream);
        CHECK(answers(blocking).id != answers(free_running).id);
        CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
        CHECK(cudaStreamDestroy(free_running) == cudaSuccess);
    });
}

TEST_CASE("stream_queries: a thread that never called CUDA gets answers too") {
    support::every_schedule([] {
        cudaStream_t stream = nullptr;
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        unsigned long long const here = answers(stream).id;
        unsigned long long there = 0;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusInvalidated;
        cudaError_t error = cudaErrorUnknown;
        std::thread([&] {
            error = query_capture(stream, &status);
            if (error == cudaSuccess)
                error = query_id(stream, &there);
        }).join();
        CHECK(error == cudaSuccess);
        CHECK(status == cudaStreamCaptureStatusNone);
        CHECK(there == here);
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    });
}

TEST_CASE("stream_queries: whether a stream is captured may be asked during its capture") {
    support::every_schedule([] {
        cudaStream_t stream = nullptr;
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        {
            support::capture graph(stream);
            cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            CHECK(query_capture(stream, &status) == cudaSuccess);
            CHECK(status == cudaStreamCaptureStatusActive);
            CHECK(graph.unbroken());
        }
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    });
}

TEST_CASE("stream_queries: where the driver wants a context the runtime is asked") {
    CHECK(weir::detail::wants_context(3));
    CHECK(weir::detail::wants_context(4));
    CHECK(weir::detail::wants_context(201));
    CHECK(weir::detail::wants_context(709));
    CHECK_FALSE(weir::detail::wants_context(cudaSuccess));
    CHECK_FALSE(weir::detail::wants_context(cudaErrorStreamCaptureUnsupported));
    CHECK_FALSE(weir::detail::wants_context(cudaErrorInvalidResourceHandle));
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("stream_queries: a function that the driver does not tell is none, and no error is left behind") {
    simulated_cuda::world const here;
    simulated_cuda::fail_call("cudaGetDriverEntryPointByVersion", 1, cudaErrorInvalidValue);
    int (*none)(cudaStream_t) = nullptr;
    weir::detail::stream_queries::find("cuNoSuchFunction", none);
    CHECK(simulated_cuda::failed_calls() == 1);
    CHECK((none == nullptr));
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("stream_queries: a thread's capture mode is exchanged by the runtime where the driver wants a context") {
    simulated_cuda::world const here;
    simulated_cuda::fail_call("cudaThreadExchangeStreamCaptureMode", 1, cudaErrorDeviceUninitialized);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(weir::exchange_capture_mode(&mode) == cudaSuccess);
    CHECK(mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK(mode == cudaStreamCaptureModeRelaxed);
}
#endif
