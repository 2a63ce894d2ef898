// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <vector>
#include <weir/runtime/wait.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

using support::sentence_of;
using weir::check_cuda;
using weir::runtime::wait_for_device;

TEST_CASE("wait: all that was enqueued is over, whoever did it") {
    support::every_schedule([] {
        support::scoped_stream const s;
        cudaEvent_t passed = nullptr;
        REQUIRE(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming) == cudaSuccess);
        void* p = nullptr;
        REQUIRE(cudaMalloc(&p, 1024) == cudaSuccess);
        CHECK(cudaMemsetAsync(p, 1, 1024, s) == cudaSuccess);
        CHECK(cudaEventRecord(passed, s) == cudaSuccess);
        wait_for_device(0);
        CHECK(cudaEventQuery(passed) == cudaSuccess);
        CHECK(cudaMemsetAsync(p, 2, 1024, s) == cudaSuccess);
        CHECK(cudaEventRecord(passed, s) == cudaSuccess);
        wait_for_device(weir::any_device);
        CHECK(cudaEventQuery(passed) == cudaSuccess);
        CHECK(cudaEventDestroy(passed) == cudaSuccess);
        CHECK(cudaFree(p) == cudaSuccess);
    });
}

TEST_CASE("wait: breaks no capture") {
    support::every_schedule([] {
        support::scoped_stream const s;
        support::capture graph(s);
        wait_for_device(0);
        CHECK(graph.unbroken());
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace device = simulated_cuda;

TEST_CASE("wait: waits for streams that were destroyed, on the device that is named") {
    device::world const here(device::config{}.late().with_devices(2), support::report_all);
    for (int const current : {0, 1}) {
        CAPTURE(current);
        CHECK(cudaSetDevice(1) == cudaSuccess);
        cudaStream_t s = nullptr;
        REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
        CHECK(device::launch(s, {}, {}) == cudaSuccess);
        CHECK(cudaStreamDestroy(s) == cudaSuccess);
        CHECK(cudaSetDevice(current) == cudaSuccess);
        CHECK(device::pending() == 1);
        wait_for_device(0);
        CHECK(device::pending() == 1);
        wait_for_device(1);
        CHECK(device::pending() == 0);
        int now = -1;
        CHECK(cudaGetDevice(&now) == cudaSuccess);
        CHECK(now == current);
    }
    CHECK(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("wait: for any device, it waits for those in use and makes CUDA ready on no other") {
    device::world const here(device::config{}.late().with_devices(3), support::report_all);
    support::scoped_stream const near;
    CHECK(cudaSetDevice(2) == cudaSuccess);
    support::scoped_stream const far;
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(device::launch(near, {}, {}) == cudaSuccess);
    CHECK(device::launch(far, {}, {}) == cudaSuccess);
    CHECK(device::pending() == 2);
    wait_for_device(weir::any_device);
    CHECK(device::pending() == 0);
    CHECK(device::calls("cudaFree") == 2);
    CHECK(weir::runtime::detail::is_ready(0));
    CHECK_FALSE(weir::runtime::detail::is_ready(1));
    CHECK(weir::runtime::detail::is_ready(2));
    CHECK(weir::runtime::detail::is_ready(3)); // of which CUDA tells nothing
    wait_for_device(1);
    CHECK(weir::runtime::detail::is_ready(1));
}

TEST_CASE("wait: for any device, it waits for the others where one fails, and says so") {
    for (bool const lost : {false, true}) {
        CAPTURE(lost);
        device::world const here(device::config{}.late().with_devices(3), support::report_all);
        for (int each : {0, 1, 2}) {
            CHECK(cudaSetDevice(each) == cudaSuccess);
            cudaStream_t s = nullptr;
            REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
            CHECK(device::launch(s, {}, {}) == cudaSuccess);
            CHECK(cudaStreamDestroy(s) == cudaSuccess);
        }
        CHECK(cudaSetDevice(2) == cudaSuccess);
        device::fail_call(lost ? "cudaMalloc" : "cudaFree", 1, cudaErrorUnknown);
        CHECK_THROWS_AS(wait_for_device(weir::any_device), weir::cuda_error);
        CHECK(device::failed_calls() == 1);
        device::clear_faults();
        CHECK(device::pending() == (lost ? 1 : 0)); // what is freed at the second attempt waits as well
        CHECK(cudaSetDevice(0) == cudaSuccess);
        wait_for_device(0);
    }
}

TEST_CASE("wait: where there is no managed memory, or no byte left on the device, it waits all the same") {
    struct row {
        int devices;
        bool has_managed, has_room;
    };
    for (row const& each : {row{1, false, true}, row{1, false, false}, row{2, true, false}}) {
        CAPTURE(each.devices);
        CAPTURE(each.has_room);
        device::world const here(device::config{}.late().with_devices(each.devices), support::report_all);
        support::scoped_stream const s;
        CHECK(device::launch(s, {}, {}) == cudaSuccess);
        if (!each.has_managed)
            device::fail_call("cudaMallocManaged", 1, cudaErrorNotSupported, device::lasting::for_ever);
        if (!each.has_room)
            device::fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation, device::lasting::for_ever);
        if (!each.has_managed && !each.has_room) {
            wait_for_device(0);
        } else {
            support::scoped_stream const captured;
            support::capture graph(captured);
            wait_for_device(0);
            CHECK(graph.unbroken());
        }
        device::clear_faults();
        CHECK(device::pending() == 0);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
}

TEST_CASE("wait: takes nothing of the device's memory where it is the only one") {
    for (int const devices : {1, 2}) {
        CAPTURE(devices);
        device::world const here(device::config{}.with_devices(devices), support::report_all);
        wait_for_device(0);
        CHECK(device::calls("cudaMalloc") == (devices == 1 ? 0 : 1));
        CHECK(device::calls("cudaMallocManaged") == (devices == 1 ? 1 : 0));
    }
}

TEST_CASE("wait: a call that fails is named, and nothing leaks") {
    for (std::uint64_t k = 1;; ++k) {
        CAPTURE(k);
        device::world const here(device::config{}.late(), support::report_all);
        device::fail_call(k, cudaErrorUnknown);
        try {
            wait_for_device(0);
        } catch (weir::cuda_error const& error) { // leaving the relaxed mode is tried twice, and may fail unseen
            CHECK(error.code() == static_cast<int>(cudaErrorUnknown));
        }
        bool const struck = device::failed_calls() != 0;
        device::clear_faults();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        if (!struck)
            break;
    }
}

#endif

TEST_CASE("wait: waits for the stream's work, and for nobody else's") {
    support::every_schedule([] {
        support::scoped_stream const a;
        std::size_t const bytes = 1 << 16;
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        std::vector<unsigned char> host(bytes, 0);
        for (int value = 1; value < 4; ++value) {
            check_cuda(cudaMemsetAsync(p, value, bytes, a), "cudaMemsetAsync");
            check_cuda(cudaMemcpyAsync(host.data(), p, bytes, cudaMemcpyDefault, a), "cudaMemcpyAsync");
            weir::synchronize(a);
            CHECK(host == std::vector<unsigned char>(bytes, static_cast<unsigned char>(value)));
            CHECK(cudaStreamQuery(a) == cudaSuccess);
        }
        weir::synchronize(weir::on_host); // nothing to wait for
        check_cuda(cudaFree(p), "cudaFree");
    });
}

TEST_CASE("wait: leaves the capture of another stream whole") {
    support::every_schedule([] {
        support::scoped_stream const a, captured;
        support::capture graph(captured);
        weir::synchronize(a);
        CHECK(graph.unbroken());
    });
}

TEST_CASE("wait: the legacy stream's work is done also beside a blocking capture, which goes on; a captured stream is refused") {
    for (cudaStreamCaptureMode const mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed})
        support::every_schedule([&] {
            cudaStream_t blocking = nullptr;
            check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
            void* p = nullptr;
            check_cuda(cudaMalloc(&p, 16), "cudaMalloc");
            unsigned char host[16] = {};
            check_cuda(cudaMemsetAsync(p, 7, 16, cudaStreamLegacy), "cudaMemsetAsync");
            check_cuda(cudaMemcpyAsync(host, p, 16, cudaMemcpyDefault, cudaStreamLegacy), "cudaMemcpyAsync");
            {
                support::capture graph(blocking, mode);
                weir::synchronize(cudaStreamLegacy);
                CHECK(host[15] == 7);
                CHECK_SAYS(sentence_of<weir::usage_error>([&] { weir::synchronize(blocking); }),
                           "the host cannot wait for a stream that is being captured");
                CHECK(graph.unbroken());
            }
            weir::synchronize(cudaStreamLegacy);
            check_cuda(cudaFree(p), "cudaFree");
            check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
        });
}

TEST_CASE("wait: whatever call fails, it says so, and the thread's mode of capture is as before") {
    struct one {
        support::scoped_stream s;
    };
    auto const prepare = [] { return std::make_unique<one>(); };
    auto const runs = support::fault_sweep(prepare, [](one& state) { weir::synchronize(state.s); },
                                           [](one&, support::struck const& fault) {
                                               CHECK((fault.threw || !fault.hit("cudaStreamSynchronize")));
                                           });
    auto const none = support::fault_sweep(prepare, [](one&) { weir::synchronize(weir::on_host); },
                                           [](one&, support::struck const&) {});
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs >= 6);
    CHECK(none == 0);
#endif
    static_cast<void>(runs + none);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("wait: a stream that was destroyed is refused with a sentence") {
    simulated_cuda::world world;
    cudaStream_t gone = nullptr;
    check_cuda(cudaStreamCreate(&gone), "cudaStreamCreate");
    check_cuda(cudaStreamDestroy(gone), "cudaStreamDestroy");
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { weir::synchronize(gone); }),
               "the stream or event was destroyed, or belongs to another device");
    world.forgive(); // on a GPU this would crash: the simulator tells whose bug it is
}
#endif
