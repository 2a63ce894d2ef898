// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <weir/graph/graph_memory/last_uses.hpp>

using weir::check_cuda;
using weir::graph::detail::last_uses;

namespace {

constexpr std::size_t bytes = std::size_t{1} << 20;

int first_byte(void const* p) {
    unsigned char byte = 0;
    check_cuda(cudaMemcpy(&byte, p, 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return byte;
}

void make_wait(last_uses& uses, weir::stream_ref stream) {
    while (!uses.try_make_wait(stream))
        uses.wait();
}

} // namespace

TEST_CASE("last_uses: whoever was made to wait comes behind what every noted stream did, and the host waits itself") {
    support::every_schedule([] {
        support::scoped_stream const a, b, c;
        void *first = nullptr, *second = nullptr;
        check_cuda(cudaMalloc(&first, bytes), "cudaMalloc");
        check_cuda(cudaMalloc(&second, bytes), "cudaMalloc");
        last_uses uses;
        check_cuda(cudaMemsetAsync(first, 3, bytes, a), "cudaMemsetAsync");
        uses.note(a);
        check_cuda(cudaMemsetAsync(second, 4, bytes, b), "cudaMemsetAsync");
        uses.note(b);
        uses.note(weir::on_host); // of which nothing is left to wait for
        make_wait(uses, c);
        check_cuda(cudaMemcpyAsync(first, second, bytes, cudaMemcpyDefault, c), "cudaMemcpyAsync"); // behind both
        check_cuda(cudaStreamSynchronize(c), "cudaStreamSynchronize");
        CHECK(first_byte(first) == 4);
        check_cuda(cudaMemsetAsync(first, 5, bytes, a), "cudaMemsetAsync");
        uses.note(a);
        make_wait(uses, weir::on_host);
        CHECK(cudaStreamQuery(a) == cudaSuccess);
        check_cuda(cudaFree(first), "cudaFree");
        check_cuda(cudaFree(second), "cudaFree");
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("last_uses: where a note fails, or the wait does, all work on the device is waited for") {
    for (char const* call : {"cudaEventRecord", "cudaEventCreateWithFlags", "cudaStreamWaitEvent"}) {
        CAPTURE(call);
        simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
        support::scoped_stream const a, b;
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        last_uses uses;
        check_cuda(cudaMemsetAsync(p, 3, bytes, a), "cudaMemsetAsync");
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
        uses.note(a);
        make_wait(uses, b);
        simulated_cuda::clear_faults();
        CHECK(cudaStreamQuery(a) == cudaSuccess);
        auto const waits = simulated_cuda::calls("cudaFree");
        make_wait(uses, b); // once only
        CHECK(simulated_cuda::calls("cudaFree") == waits);
        check_cuda(cudaFree(p), "cudaFree");
    }
}

TEST_CASE("last_uses: what is not known is waited for on every device") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const far;
    check_cuda(simulated_cuda::launch(far, {}, {}), "launch");
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    last_uses uses;
    uses.note_unknown();
    make_wait(uses, weir::on_host);
    CHECK(simulated_cuda::pending() == 0);
}

TEST_CASE("last_uses: where the device cannot be waited for as a whole, its events are, and the next call waits for the rest") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a;
    void* p = nullptr;
    check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
    last_uses uses;
    check_cuda(cudaMemsetAsync(p, 3, bytes, a), "cudaMemsetAsync");
    uses.note(a);
    uses.note_unknown();
    for (char const* call : {"cudaMallocManaged", "cudaMalloc"})
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown, simulated_cuda::lasting::for_ever);
    CHECK_THROWS_AS(make_wait(uses, weir::on_host), weir::cuda_error);
    CHECK(simulated_cuda::pending() == 0);
    CHECK_THROWS_AS(make_wait(uses, weir::on_host), weir::cuda_error);
    simulated_cuda::clear_faults();
    check_cuda(cudaMemsetAsync(p, 4, bytes, a), "cudaMemsetAsync");
    make_wait(uses, weir::on_host);
    CHECK(simulated_cuda::pending() == 0);
    check_cuda(cudaFree(p), "cudaFree");
}

TEST_CASE("last_uses: while one thread waits nobody goes on, and another one waits as long") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, b;
    last_uses uses;
    uses.note(a);
    bool went_on = true;
    struct hook {
        last_uses& uses;
        cudaStream_t on;
        bool& went_on;
    } meanwhile{uses, b, went_on};
    check_cuda(cudaLaunchHostFunc(a, [](void* of) {
        auto const& self = *static_cast<hook*>(of);
        self.went_on = self.uses.try_make_wait(self.on);
    }, &meanwhile), "cudaLaunchHostFunc");
    uses.note(a);
    uses.wait();
    CHECK_FALSE(went_on);
    CHECK(uses.try_make_wait(b));
}
#endif
