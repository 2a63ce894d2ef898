// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <set>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <thread>
#include <weir/reuse/identity.hpp>
#include <weir/runtime/devices.hpp>

using weir::check_cuda;
namespace identity = weir::identity;

static_assert(identity::checked::asks && !identity::promised::asks);
static_assert(noexcept(identity::promised::id(cudaStream_t{})) &&
              noexcept(identity::promised::require_no_capture(cudaStream_t{})));

TEST_CASE("identity: checked tells a stream from an earlier one of the same handle") {
    support::every_schedule([] {
        std::set<unsigned long long> ids;
        std::set<cudaStream_t> handles;
        for (int i = 0; i < 20; ++i) {
            support::scoped_stream const s;
            handles.insert(s);
            CHECK(ids.insert(identity::checked::id(s)).second);
        }
        CHECK(ids.size() == 20);
        CHECK(handles.size() < 20); // handles come again: that is the trap
    });
}

TEST_CASE("identity: promised asks nothing") {
    support::every_schedule([] {
        support::scoped_stream const s;
#ifdef WEIR_SIMULATED_CUDA
        auto const before = simulated_cuda::calls();
#endif
        CHECK(identity::promised::id(s) == identity::promised::id(cudaStreamLegacy));
        identity::promised::require_no_capture(s);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(simulated_cuda::calls() == before);
#endif
    });
}

TEST_CASE("identity: checked refuses a captured stream, and does not break its capture") {
    support::every_schedule([] {
        support::scoped_stream const s;
        CHECK_NOTHROW(identity::checked::require_no_capture(s));
        support::capture graph(s);
        CHECK_THROWS_AS(identity::checked::require_no_capture(s), weir::usage_error);
        CHECK_NOTHROW(identity::promised::require_no_capture(s));
        CHECK(graph.unbroken());
    });
}

TEST_CASE("identity: every call may fail, and names itself") {
    struct one {
        support::scoped_stream s;
    };
    auto const prepare = [] { return std::make_unique<one>(); };
    auto const threw = [](one&, support::struck const& fault) { CHECK(fault.threw == !fault.calls.empty()); };
    auto runs = support::fault_sweep(prepare, [](one& x) { static_cast<void>(identity::checked::id(x.s)); }, threw);
    runs += support::fault_sweep(prepare, [](one& x) { identity::checked::require_no_capture(x.s); }, threw);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs == 4);
#endif
    static_cast<void>(runs);
}
