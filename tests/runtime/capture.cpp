// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <weir/runtime/capture.hpp>

using weir::runtime::capture_mode_scope;
using weir::check_cuda;
using weir::runtime::is_capturing;

static_assert(!std::is_copy_constructible_v<capture_mode_scope> && !std::is_copy_assignable_v<capture_mode_scope>);

namespace {

// This thread's mode, which stays as it was.
cudaStreamCaptureMode mode_now() {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    cudaStreamCaptureMode back = mode;
    CHECK(cudaThreadExchangeStreamCaptureMode(&back) == cudaSuccess);
    return mode;
}

} // namespace

TEST_CASE("capture: a stream is captured from the beginning of its capture to the end") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        CHECK_FALSE(is_capturing(s));
        support::capture graph(s);
        for (int i = 0; i < 3; ++i)
            CHECK(is_capturing(s));
        CHECK_FALSE(is_capturing(other));
        CHECK_FALSE(is_capturing(cudaStreamPerThread));
        CHECK_FALSE(is_capturing(weir::on_host));
        CHECK(graph.unbroken()); // asking breaks nothing
        CHECK_FALSE(is_capturing(s));
    });
}

TEST_CASE("capture: require_no_capture refuses a captured stream with a sentence, and breaks nothing") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        CHECK_NOTHROW(weir::runtime::require_no_capture(s));
        support::capture graph(s);
        std::string const sentence = support::sentence_of<weir::usage_error>([&] { weir::runtime::require_no_capture(s); });
        CHECK_SAYS(sentence, "on a stream that is being captured into a graph; do it before the capture begins, or allocate "
                             "from a weir::graph_memory of the pool");
        CHECK_NOTHROW(weir::runtime::require_no_capture(other));
        CHECK_NOTHROW(weir::runtime::require_no_capture(weir::on_host));
        CHECK(graph.unbroken());
        CHECK_NOTHROW(weir::runtime::require_no_capture(s));
    });
}

TEST_CASE("capture: a capture that was broken is still one until it ends") {
    support::every_schedule([] {
        support::scoped_stream const s;
        support::capture graph(s);
        CHECK(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
        static_cast<void>(cudaGetLastError());
        CHECK(is_capturing(s));
        CHECK(weir::runtime::capture_state_of(s) == weir::runtime::capture_state::broken);
        CHECK_FALSE(graph.unbroken());
        CHECK_FALSE(is_capturing(s));
    });
}

TEST_CASE("capture: the legacy stream counts as captured while a stream that waits for it is") {
    support::every_schedule([] {
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        CHECK_FALSE(is_capturing(cudaStreamLegacy));
        support::capture graph(blocking);
        CHECK(is_capturing(cudaStreamLegacy));
        CHECK(is_capturing(cudaStream_t{}));
        CHECK(weir::runtime::capture_of(cudaStreamLegacy).id == 0); // it is never captured itself
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(graph.unbroken());
        CHECK_FALSE(is_capturing(cudaStreamLegacy));
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    });
}

TEST_CASE("capture: so does a thread's own stream, for that thread") {
    support::every_schedule([] {
        support::capture graph(cudaStreamPerThread);
        CHECK(is_capturing(cudaStreamPerThread));
        bool elsewhere = true;
        std::thread([&] { elsewhere = is_capturing(cudaStreamPerThread); }).join();
        CHECK_FALSE(elsewhere);
        CHECK(graph.unbroken());
    });
}

TEST_CASE("capture: in the scope, housekeeping breaks no capture, whichever thread does it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        auto const housekeep = [] {
            capture_mode_scope const relaxed;
            void* p = nullptr;
            CHECK(cudaMalloc(&p, 1 << 20) == cudaSuccess);
            CHECK(cudaFree(p) == cudaSuccess);
        };
        for (cudaStreamCaptureMode mode :
             {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
            support::capture graph(s, mode);
            housekeep();
            std::thread(housekeep).join();
            CHECK(graph.unbroken());
        }
    });
}

TEST_CASE("capture: without the scope it does, which is why there is one") {
    support::every_schedule([] {
        support::scoped_stream const s;
        support::capture graph(s);
        void* p = nullptr;
        CHECK(cudaMalloc(&p, 1 << 20) == cudaErrorStreamCaptureUnsupported);
        static_cast<void>(cudaGetLastError());
        CHECK_FALSE(graph.unbroken());
    });
}

TEST_CASE("capture: the scope leaves the thread's mode as it found it") {
    support::every_schedule([] {
        CHECK(mode_now() == cudaStreamCaptureModeGlobal);
        {
            capture_mode_scope const outer;
            CHECK(mode_now() == cudaStreamCaptureModeRelaxed);
            {
                capture_mode_scope const inner;
                CHECK(mode_now() == cudaStreamCaptureModeRelaxed);
            }
            CHECK(mode_now() == cudaStreamCaptureModeRelaxed);
            cudaStreamCaptureMode elsewhere = cudaStreamCaptureModeRelaxed;
            std::thread([&] { elsewhere = mode_now(); }).join();
            CHECK(elsewhere == cudaStreamCaptureModeGlobal);
        }
        CHECK(mode_now() == cudaStreamCaptureModeGlobal);
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
        check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
        { capture_mode_scope const relaxed; }
        CHECK(mode_now() == cudaStreamCaptureModeThreadLocal);
        check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    });
}

TEST_CASE("capture: every call may fail, and names itself") {
    struct one {
        support::scoped_stream s;
    };
    auto const prepare = [] { return std::make_unique<one>(); };
    auto runs = support::fault_sweep(prepare, [](one& state) { static_cast<void>(is_capturing(state.s)); },
                                     [](one&, support::struck const& fault) { CHECK(fault.threw == !fault.calls.empty()); });
    runs += support::fault_sweep(prepare, [](one&) { capture_mode_scope const relaxed; },
                                 [](one&, support::struck const& fault) {
                                     // The second call, which goes back, has nobody to tell.
                                     CHECK((!fault.threw || mode_now() == cudaStreamCaptureModeGlobal));
                                 });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs == 6);
#endif
    static_cast<void>(runs);
}
