// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <weir/order/ordered_copy.hpp>
#include <weir/runtime/wait.hpp>

using weir::any_device;
using weir::check_cuda;
using weir::order::placed_stream;

namespace {

constexpr std::size_t bytes = 1 << 16;

struct block {
    void* p = nullptr;
    int device;

    explicit block(int on = 0, bool managed = false) : device(managed ? any_device : on) {
        weir::runtime::device_scope const there(on);
        check_cuda(managed ? cudaMallocManaged(&p, bytes) : cudaMalloc(&p, bytes), "cudaMalloc");
    }
    block(block const&) = delete;
    block& operator=(block const&) = delete;
    ~block() {
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(cudaFree(p) == cudaSuccess);
    }
    int last() const {
        unsigned char value = 0;
        check_cuda(cudaMemcpy(&value, static_cast<unsigned char const*>(p) + bytes - 1, 1, cudaMemcpyDefault), "cudaMemcpy");
        return value;
    }
};

void fill(block const& where, int value, placed_stream const& by) {
    weir::runtime::device_scope const there(by.device);
    check_cuda(cudaMemsetAsync(where.p, value, bytes, by.stream.get()), "cudaMemsetAsync");
}
void copy(block const& to, placed_stream const& target, block const& from, placed_stream const& source) {
    weir::order::copy_in_order(to.p, to.device, target, from.p, from.device, source, bytes);
}

} // namespace

TEST_CASE("ordered_copy: comes after both streams' work so far and before their work from now on") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        block const to, from;
        for (int value = 1; value < 5; ++value) {
            fill(to, 100, {a, 0});
            fill(from, value, {b, 0});
            copy(to, {a, 0}, from, {b, 0});
            fill(from, 200, {b, 0});
            weir::synchronize(a);
            CHECK(to.last() == value);
        }
        weir::order::copy_in_order(nullptr, 0, {a, 0}, nullptr, 0, {b, 0}, 0); // nothing
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("ordered_copy: between two devices, on their default streams too, whichever device is current") {
    for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread})
        for (bool const managed : {false, true})
            for (int current = 0; current < 2; ++current) {
                CAPTURE(managed);
                CAPTURE(current);
                simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
                block const to(0, managed), from(1);
                weir::runtime::device_scope const there(current);
                fill(to, 100, {each, 0});
                fill(from, 7, {each, 1});
                copy(to, {each, 0}, from, {each, 1});
                fill(from, 200, {each, 1});
                weir::runtime::device_scope const here(0);
                weir::synchronize(each);
                CHECK(to.last() == 7);
                weir::runtime::device_scope const back(1);
                weir::synchronize(each);
            }
}

TEST_CASE("ordered_copy: memory that lies on no device is filled by the stream of its source's, behind the target's work") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const a;
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const b;
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    block const to(0, true), from(1);
    fill(from, 7, {b, 1});
    fill(to, 100, {a, any_device});
    copy(to, {a, any_device}, from, {b, 1});
    weir::synchronize(a);
    CHECK(to.last() == 7);
}

TEST_CASE("ordered_copy: a default stream is its device's, also where the memory is another's") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    block const to(1), from(1);
    fill(from, 7, {cudaStreamLegacy, 1});
    weir::order_after(placed_stream{cudaStreamLegacy, 0}, placed_stream{cudaStreamLegacy, 1});
    copy(to, {cudaStreamLegacy, 0}, from, {cudaStreamLegacy, 0});
    weir::synchronize(cudaStreamLegacy);
    CHECK(to.last() == 7);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaSuccess);
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("ordered_copy: where the source's stream cannot be made to wait, the host does, and breaks no capture") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, b, captured;
    block const to, from;
    fill(from, 7, {b, 0});
    support::capture graph(captured);
    simulated_cuda::fail_call("cudaStreamWaitEvent", 2, cudaErrorUnknown);
    copy(to, {a, 0}, from, {b, 0});
    CHECK(simulated_cuda::failed_calls() == 1);
    CHECK(graph.unbroken());
    fill(from, 200, {b, 0});
    weir::synchronize(a);
    CHECK(to.last() == 7);
    fill(from, 7, {b, 0});
    simulated_cuda::fail_call("cudaStreamWaitEvent", 2, cudaErrorUnknown);
    for (std::uint64_t const call : {1u, 2u})
        simulated_cuda::fail_call("cudaStreamSynchronize", call, cudaErrorUnknown);
    CHECK_THROWS_AS(copy(to, {a, 0}, from, {b, 0}), weir::cuda_error);
    simulated_cuda::clear_faults();
    CHECK(cudaGetLastError() == cudaSuccess); // nothing is left on CUDA's record
    weir::synchronize(a);
}
TEST_CASE("ordered_copy: where the source's stream cannot be made to wait in a capture, the error is told and the capture goes on") {
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    support::scoped_stream const a, b;
    block const to, from;
    fill(from, 7, {b, 0});
    weir::synchronize(b);
    support::capture graph(a);
    weir::order_after(b, a);
    simulated_cuda::fail_call("cudaStreamWaitEvent", 2, cudaErrorUnknown);
    CHECK_THROWS_AS(copy(to, {a, 0}, from, {b, 0}), weir::cuda_error);
    CHECK(simulated_cuda::failed_calls() == 1);
    copy(to, {a, 0}, from, {b, 0});
    weir::order_after(a, b);
    std::size_t copies = 0;
    CHECK(graph.unbroken(&copies));
    CHECK(copies == 2);
}
#endif

TEST_CASE("ordered_copy: a graph's copy to what is no graph's is refused, and the capture lives on") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        block const to, from;
        support::capture graph(b);
        CHECK_THROWS_AS(copy(to, {a, 0}, from, {b, 0}), weir::usage_error);
        CHECK_FALSE(weir::runtime::is_capturing(a));
        CHECK_THROWS_AS(copy(from, {b, 0}, to, {a, 0}), weir::usage_error);
        copy(to, {b, 0}, from, {b, 0}); // on the captured stream itself
        CHECK(graph.unbroken());
    });
}
