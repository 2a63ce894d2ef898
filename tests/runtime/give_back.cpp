// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <weir/runtime/give_back.hpp>

namespace {

struct kind {
    cudaError_t (*allocate)(void**);
    cudaError_t (*free)(void*);
    char const* name;
};
kind const kinds[] = {{[](void** p) { return cudaMalloc(p, 4096); }, cudaFree, "cudaFree"},
                      {[](void** p) { return cudaHostAlloc(p, 4096, 0); }, cudaFreeHost, "cudaFreeHost"}};

} // namespace

TEST_CASE("give_back: memory goes back while another stream is captured") {
    support::every_schedule([] {
        for (kind const& each : kinds) {
            void* p = nullptr;
            weir::check_cuda(each.allocate(&p), each.name);
            support::scoped_stream const s;
            support::capture captured(s);
            CHECK(weir::runtime::gave_back([&] { return each.free(p); }));
            CHECK(captured.unbroken());
        }
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("give_back: what is refused is told, leaves no error behind, and can be offered again") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    for (kind const& each : kinds) {
        void* p = nullptr;
        weir::check_cuda(each.allocate(&p), each.name);
        for (char const* const call : {each.name, "cudaThreadExchangeStreamCaptureMode"}) {
            simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
            CHECK_FALSE(weir::runtime::gave_back([&] { return each.free(p); }));
            CHECK(cudaPeekAtLastError() == cudaSuccess);
        }
        CHECK(weir::runtime::gave_back([&] { return each.free(p); }));
    }
}
#endif
