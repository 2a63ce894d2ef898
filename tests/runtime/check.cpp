// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <string>
#include <support/sentence.hpp>
#include <weir/runtime/check.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using support::sentence_of;
using weir::runtime::advice_for;
using weir::check_cuda;
using weir::cuda_error;

namespace {

std::string said(cudaError_t error) {
    return sentence_of<cuda_error>([&] { check_cuda(error, "cudaThing"); });
}

} // namespace

TEST_CASE("check: success passes") {
    CHECK_NOTHROW(check_cuda(cudaSuccess, "cudaThing"));
    CHECK_FALSE(weir::runtime::out_of_room(cudaSuccess, "cudaMalloc"));
    CHECK(weir::runtime::succeeded(cudaSuccess));
}

TEST_CASE("check: the earlier name does the same") {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    CHECK_NOTHROW(weir::check(cudaSuccess, "cudaThing"));
    CHECK_THROWS_AS(weir::check(cudaErrorInvalidValue, "cudaThing"), cuda_error);
#pragma GCC diagnostic pop
}

TEST_CASE("check: a failure names the call, CUDA's name and number of the error") {
    try {
        check_cuda(cudaErrorInvalidValue, "cudaThing");
        FAIL_CHECK("nothing was thrown");
    } catch (cuda_error const& error) {
        CHECK(std::string(error.call()) == "cudaThing");
        CHECK(error.code() == static_cast<int>(cudaErrorInvalidValue));
        CHECK(std::string(error.what()) == "weir: cudaThing failed with cudaErrorInvalidValue (1)");
    }
}

TEST_CASE("check: what a user can do something about says what to do") {
    CHECK_SAYS(said(cudaErrorNoDevice), "no GPU is visible; check 'nvidia-smi' and CUDA_VISIBLE_DEVICES");
    CHECK_SAYS(said(cudaErrorInsufficientDriver), "install or update the driver, or build with an older toolkit");
    CHECK_SAYS(said(cudaErrorInvalidDevice), "cudaGetDeviceCount says how many there are");
    CHECK_SAYS(said(cudaErrorInvalidResourceHandle), "or belongs to another device; use one that lives, of the memory's device");
    CHECK_SAYS(said(cudaErrorIllegalAddress), "run it there with a pool of <weir/interop/nvtx.hpp>");
    CHECK_SAYS(said(cudaErrorIllegalAddress), "(examples/checking.md says how)");
    CHECK_SAYS(said(cudaErrorLaunchFailure), "an earlier kernel faulted");
    for (cudaError_t each :
         {cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated, cudaErrorStreamCaptureImplicit})
        CHECK_SAYS(said(each), "make it before the capture begins");
    for (cudaError_t each : {cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorInvalidDevice,
                             cudaErrorInvalidResourceHandle, cudaErrorIllegalAddress})
        CHECK(said(each).find("weir: cudaThing failed with cudaError") == 0);
}

TEST_CASE("check: what an invalid value may be the caller tells") {
    CHECK(sentence_of<cuda_error>([] { weir::check_cuda(cudaErrorInvalidValue, "cudaThing", "name a thing that exists"); }) ==
          "weir: cudaThing failed with cudaErrorInvalidValue (1): name a thing that exists");
    CHECK(sentence_of<cuda_error>([] { weir::check_cuda(cudaErrorUnknown, "cudaThing", "name a thing that exists"); }) ==
          "weir: cudaThing failed with cudaErrorUnknown (999)");
}

TEST_CASE("check: where CUDA's name says it all, nothing is added") {
    CHECK(std::string(advice_for(cudaErrorUnknown)).empty());
    CHECK(std::string(advice_for(cudaSuccess)).empty());
    CHECK(said(cudaErrorUnknown) == "weir: cudaThing failed with cudaErrorUnknown (999)");
}

TEST_CASE("check: no room is an answer, any other failure an error") {
    CHECK(weir::runtime::out_of_room(cudaErrorMemoryAllocation, "cudaMalloc"));
    CHECK_THROWS_AS(weir::runtime::out_of_room(cudaErrorUnknown, "cudaMalloc"), cuda_error);
    CHECK_SAYS(sentence_of<cuda_error>([] { weir::runtime::out_of_room(cudaErrorNoDevice, "cudaMalloc"); }),
               "weir: cudaMalloc failed with cudaErrorNoDevice (100): no GPU is visible");
}

TEST_CASE("check: succeeded tells, and throws nothing") {
    CHECK_FALSE(weir::runtime::succeeded(cudaErrorUnknown));
    CHECK_FALSE(weir::runtime::succeeded(cudaErrorMemoryAllocation));
    CHECK(noexcept(weir::runtime::succeeded(cudaErrorUnknown)));
}

TEST_CASE("check: a failure that was reported is not found again by somebody else's cudaGetLastError"
          * doctest::test_suite("fills the card")) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    auto const fail = [] {
        int value = 0;
        return cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 12345); // no such device
    };
    static_cast<void>(cudaGetLastError());
    cudaError_t const error = fail();
    REQUIRE(error == cudaErrorInvalidDevice);
    REQUIRE(cudaPeekAtLastError() == error); // CUDA keeps it
    CHECK_THROWS_AS(check_cuda(error, "cudaDeviceGetAttribute"), cuda_error);
    CHECK(cudaPeekAtLastError() == cudaSuccess);

    void* p = nullptr;
    cudaError_t const none = cudaMalloc(&p, std::size_t{1} << 60);
    REQUIRE(none == cudaErrorMemoryAllocation);
    CHECK(weir::runtime::out_of_room(none, "cudaMalloc"));
    CHECK(cudaPeekAtLastError() == cudaSuccess);

    CHECK_FALSE(weir::runtime::succeeded(fail()));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("check: an error that somebody else left on the record stays there") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    static_cast<void>(cudaGetLastError());
    int value = 0;
    cudaError_t const theirs = cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 12345);
    REQUIRE(cudaPeekAtLastError() == theirs);
    // As of a driver's function, which leaves nothing there.
    CHECK_THROWS_AS(check_cuda(cudaErrorUnknown, "cudaThing"), cuda_error);
    CHECK_FALSE(weir::runtime::succeeded(cudaErrorInvalidResourceHandle));
    CHECK(weir::runtime::out_of_room(cudaErrorMemoryAllocation, "cudaMalloc"));
    CHECK(cudaGetLastError() == theirs);
    CHECK(cudaGetLastError() == cudaSuccess);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("check: with no GPU, and with a driver that is too old, the first call says so") {
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
        void* p = nullptr;
        CHECK_SAYS(sentence_of<cuda_error>([&] { check_cuda(cudaMalloc(&p, 256), "cudaMalloc"); }), "no GPU is visible");
        world.forgive();
    }
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_driver(CUDART_VERSION / 1000 * 1000 - 10));
        void* p = nullptr;
        CHECK_SAYS(sentence_of<cuda_error>([&] { check_cuda(cudaMalloc(&p, 256), "cudaMalloc"); }),
                   "it is older than the CUDA runtime");
        world.forgive();
    }
}

TEST_CASE("check: a sticky error stays sticky, and each call that meets it throws") {
    simulated_cuda::world world;
    simulated_cuda::inject_sticky(cudaErrorIllegalAddress);
    for (int i = 0; i < 3; ++i)
        CHECK_SAYS(sentence_of<cuda_error>([&] { check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }),
                   "cudaErrorIllegalAddress (700): an earlier kernel faulted");
    world.forgive();
}
#endif
