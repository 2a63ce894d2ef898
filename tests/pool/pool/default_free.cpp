// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// What a rule is told. What pools make of it is in tests/reuse/stream_ordered.cpp ('a block of a default stream').

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
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
    void last_used_on(weir::base::range, weir::stream_ref) { note("used"); }
    void strand(weir::base::range) { calls += "strand "; }
};

} // namespace

TEST_CASE("default_free: the free is on the pool's device, behind the use on the current one") {
    struct row {
        int pool, current;
        char const* device_call_that_fails;
        char const* calls;
    };
    row const rows[] = {{0, 0, nullptr, "give0 "},
                        {1, 0, nullptr, "used0 give1 "},
                        {0, 1, nullptr, "used1 give0 "},
                        {0, 1, "cudaGetDevice", "strand "},
                        {0, 1, "cudaSetDevice", "used1 strand "}};
    for (row const& each : rows) {
        CAPTURE(std::string(each.calls));
        simulated_cuda::world const here(simulated_cuda::config{}.with_devices(2), support::report_all);
        REQUIRE(cudaSetDevice(each.current) == cudaSuccess);
        if (each.device_call_that_fails)
            simulated_cuda::fail_call(each.device_call_that_fails, 1, cudaErrorUnknown);
        told rule;
        weir::detail::give_by_default(rule, weir::base::range{4096, 256}, weir::stream_ref(cudaStreamLegacy), each.pool);
        CHECK(rule.calls == each.calls);
        simulated_cuda::clear_faults();
        CHECK(cudaSetDevice(0) == cudaSuccess);
    }
}

#endif
