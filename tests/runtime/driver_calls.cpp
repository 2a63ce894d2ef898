// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <thread>
#include <vector>
#include <weir/runtime/driver_calls.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using weir::runtime::detail::query_capture;
using weir::runtime::detail::query_id;

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

TEST_CASE("driver_calls: the default streams are known by their handles") {
    CHECK(weir::runtime::is_default_handle(nullptr));
    CHECK(weir::runtime::is_default_handle(cudaStreamLegacy));
    CHECK(weir::runtime::is_default_handle(cudaStreamPerThread));
    int anything = 0;
    CHECK_FALSE(weir::runtime::is_default_handle(reinterpret_cast<cudaStream_t>(&anything)));
}

TEST_CASE("driver_calls: the answers are the runtime's, for every kind of stream") {
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

TEST_CASE("driver_calls: a thread that never called CUDA gets answers too") {
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

TEST_CASE("driver_calls: whether a stream is captured may be asked during its capture") {
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

namespace {

// A pool of CUDA's.
class cuda_pool {
public:
    cuda_pool() {
        cudaMemPoolProps wanted{};
        wanted.allocType = cudaMemAllocationTypePinned;
        wanted.location.type = cudaMemLocationTypeDevice;
        REQUIRE(cudaMemPoolCreate(&pool_, &wanted) == cudaSuccess);
    }
    cuda_pool(cuda_pool const&) = delete;
    cuda_pool& operator=(cuda_pool const&) = delete;
    ~cuda_pool() { CHECK(cudaMemPoolDestroy(pool_) == cudaSuccess); }
    operator cudaMemPool_t() const { return pool_; }

private:
    cudaMemPool_t pool_ = nullptr;
};

struct owned_event {
    cudaEvent_t handle = nullptr;
    owned_event() { REQUIRE(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming) == cudaSuccess); }
    owned_event(owned_event const&) = delete;
    owned_event& operator=(owned_event const&) = delete;
    ~owned_event() { CHECK(cudaEventDestroy(handle) == cudaSuccess); }
    operator cudaEvent_t() const { return handle; }
};

} // namespace

TEST_CASE("driver_calls: events and blocks of a pool, on every kind of stream") {
    support::every_schedule([] {
        support::scoped_stream const one, other;
        cuda_pool const pool;
        std::size_t const bytes = 1 << 16;
        for (cudaStream_t stream : {cudaStream_t(one), cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
            owned_event const passed;
            void* p = nullptr;
            REQUIRE(weir::runtime::detail::allocate_async(&p, bytes, pool, stream) == cudaSuccess);
            CHECK(cudaMemsetAsync(p, 7, bytes, stream) == cudaSuccess);
            CHECK(weir::runtime::detail::record_event(passed, stream) == cudaSuccess);
            CHECK(weir::runtime::detail::make_stream_wait(other, passed) == cudaSuccess);
            std::vector<unsigned char> host(bytes);
            CHECK(cudaMemcpyAsync(host.data(), p, bytes, cudaMemcpyDefault, other) == cudaSuccess);
            CHECK(weir::runtime::detail::record_event(passed, other) == cudaSuccess);
            CHECK(weir::runtime::detail::make_stream_wait(stream, passed) == cudaSuccess);
            CHECK(weir::runtime::detail::free_async(p, stream) == cudaSuccess);
            CHECK(cudaEventSynchronize(passed) == cudaSuccess);
            CHECK(weir::runtime::detail::query_event(passed) == cudaSuccess);
            CHECK(host == std::vector<unsigned char>(bytes, 7));
        }
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    });
}

TEST_CASE("driver_calls: an error is answered, and not on the thread's record" * doctest::test_suite("fills the card")) {
    support::every_schedule([] {
        support::scoped_stream const s;
        cuda_pool const pool;
        void* p = nullptr;
        std::size_t const too_much = std::size_t{1} << 60;
        for (cudaStream_t stream : {cudaStream_t(s), cudaStream_t{}}) {
            CHECK(weir::runtime::detail::allocate_async(&p, too_much, pool, stream) == cudaErrorMemoryAllocation);
            CHECK(cudaPeekAtLastError() == cudaSuccess);
        }
        CHECK(p == nullptr);
        CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
        CHECK(weir::runtime::detail::allocate_async(&p, too_much, pool, s) == cudaErrorMemoryAllocation);
        CHECK(cudaGetLastError() == cudaErrorInvalidDevice); // somebody else's stays there
    });
}

TEST_CASE("driver_calls: where the driver wants a context the runtime is asked") {
    CHECK(weir::runtime::detail::wants_context(3));
    CHECK(weir::runtime::detail::wants_context(4));
    CHECK(weir::runtime::detail::wants_context(201));
    CHECK(weir::runtime::detail::wants_context(709));
    CHECK_FALSE(weir::runtime::detail::wants_context(cudaSuccess));
    CHECK_FALSE(weir::runtime::detail::wants_context(cudaErrorStreamCaptureUnsupported));
    CHECK_FALSE(weir::runtime::detail::wants_context(cudaErrorInvalidResourceHandle));
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("driver_calls: where the driver wants a context the runtime is called, whatever the call") {
    simulated_cuda::world const here;
    support::scoped_stream const s;
    cuda_pool const pool;
    owned_event const passed;
    void* p = nullptr;
    auto const both = [](char const* call, auto const& made) {
        CAPTURE(call);
        std::uint64_t const before = simulated_cuda::calls(call);
        simulated_cuda::fail_call(call, 1, cudaErrorDeviceUninitialized);
        CHECK(made() == cudaSuccess);
        CHECK(simulated_cuda::calls(call) == before + 2);
    };
    both("cudaMallocFromPoolAsync", [&] { return weir::runtime::detail::allocate_async(&p, 1024, pool, s); });
    both("cudaEventRecord", [&] { return weir::runtime::detail::record_event(passed, s); });
    both("cudaStreamWaitEvent", [&] { return weir::runtime::detail::make_stream_wait(s, passed); });
    both("cudaFreeAsync", [&] { return weir::runtime::detail::free_async(p, s); });
    simulated_cuda::drain();
    both("cudaEventQuery", [&] { return weir::runtime::detail::query_event(passed); });
}

TEST_CASE("driver_calls: a function that the driver does not tell is none, and no error is left behind") {
    simulated_cuda::world const here;
    int (*none)(cudaStream_t) = nullptr;
    CHECK(weir::runtime::detail::driver_functions::find("cuNoSuchFunction", none) == cudaSuccess);
    CHECK((none == nullptr));
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("driver_calls: a look-up that fails is made again, and is no answer that there is no such function") {
    simulated_cuda::world const here;
    int (*found)(unsigned long long) = nullptr;
    simulated_cuda::fail_call("cudaGetDriverEntryPointByVersion", 1, cudaErrorInvalidValue, simulated_cuda::lasting::for_ever);
    CHECK(weir::runtime::detail::driver_functions::find("cuMemRelease", found) == cudaErrorInvalidValue);
    CHECK((found == nullptr));
    CHECK(simulated_cuda::failed_calls() == 2);
    CHECK(cudaGetLastError() == cudaSuccess);
    simulated_cuda::clear_faults();
    simulated_cuda::fail_call("cudaGetDriverEntryPointByVersion", 1, cudaErrorInvalidValue);
    CHECK(weir::runtime::detail::driver_functions::find("cuMemRelease", found) == cudaSuccess);
    CHECK((found != nullptr));
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("driver_calls: a thread's capture mode is exchanged by the runtime where the driver wants a context") {
    simulated_cuda::world const here;
    simulated_cuda::fail_call("cudaThreadExchangeStreamCaptureMode", 1, cudaErrorDeviceUninitialized);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(weir::runtime::detail::exchange_capture_mode(&mode) == cudaSuccess);
    CHECK(mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK(mode == cudaStreamCaptureModeRelaxed);
}
#endif
