// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// What a rule is told. What pools make of it is in tests/reuse/stream_ordered.cpp ('a block of a default stream').

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <new>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <support/every_schedule.hpp>
#include <weir/base/range.hpp>
#include <weir/pool/pool/default_free.hpp>
#include <weir/runtime/stream.hpp>

namespace {

// Notes what it is told, and with which device current.
struct told {
    std::string calls;
    void note(char const* what) { calls += std::string(what) + std::to_string(weir::runtime::current_device()) + " "; }
    void give(weir::base::range, weir::stream_ref) { note("give"); }
    void used_on(weir::base::range, weir::stream_ref) { note("marked"); }
    void last_used_on(weir::base::range, weir::stream_ref) { note("used"); }
    bool wait() { return false; }
    void strand(weir::base::range) noexcept { calls += "strand "; }
    void lose(weir::base::range) noexcept { calls += "lose "; }
};

// The host has no memory to note a use.
struct full : told {
    void last_used_on(weir::base::range, weir::stream_ref) { throw std::bad_alloc(); }
};

} // namespace

TEST_CASE("default_free: the free is on the pool's device, behind the use on the current one") {
    struct row {
        int pool, current;
        char const* call_that_fails;
        bool for_ever;
        char const* calls_legacy;
        char const* calls_per_thread;
    };
    row const rows[] = {{0, 0, nullptr, false, "give0 ", "give0 "},
                        {1, 0, nullptr, false, "used0 give1 ", "used0 give1 "},
                        {0, 1, nullptr, false, "used1 give0 ", "used1 give0 "},
                        {0, 1, "cudaGetDevice", false, "used1 give0 ", "used1 give0 "},
                        {0, 1, "cudaSetDevice", false, "used1 used1 give0 ", "used1 used1 give0 "},
                        {0, 1, "cudaGetDevice", true, "strand ", "lose "}, // a graph may be captured on one of the two
                        {0, 1, "cudaSetDevice", true, "used1 used1 strand ", "used1 used1 lose "},
                        {0, 0, "cudaGetDevice", true, "strand ", "lose "}};
    for (row const& each : rows)
        for (cudaStream_t const stream : {cudaStreamLegacy, cudaStreamPerThread}) {
            std::string const expected = stream == cudaStreamLegacy ? each.calls_legacy : each.calls_per_thread;
            CAPTURE(expected);
            simulated_cuda::world const here(simulated_cuda::config{}.with_devices(2), support::report_all);
            REQUIRE(cudaSetDevice(each.current) == cudaSuccess);
            if (each.call_that_fails)
                simulated_cuda::fail_call(each.call_that_fails, 1, cudaErrorUnknown,
                                          each.for_ever ? simulated_cuda::lasting::for_ever : simulated_cuda::lasting::once);
            told rule;
            weir::pools::detail::give_by_default(rule, weir::base::range{4096, 256}, weir::stream_ref(stream), each.pool);
            simulated_cuda::clear_faults();
            CHECK(rule.calls == expected);
            CHECK(cudaSetDevice(0) == cudaSuccess);
        }
}

TEST_CASE("default_free: where it fails, a block that no captured graph uses is stranded") {
    simulated_cuda::world const here(simulated_cuda::config{}.with_devices(2), support::report_all);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    full rule;
    weir::pools::detail::give_by_default(rule, weir::base::range{4096, 256}, weir::stream_ref(cudaStreamPerThread), 0);
    CHECK(rule.calls == "strand ");
    CHECK(cudaSetDevice(0) == cudaSuccess);
}

#endif
