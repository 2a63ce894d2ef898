// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <set>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <thread>
#include <weir/runtime/device_guard.hpp>
#include <weir/runtime/identity.hpp>

using weir::check;
using weir::key_of;
namespace identity = weir::identity;

static_assert(identity::checked::asks && !identity::promised::asks);
static_assert(noexcept(identity::promised::id(cudaStream_t{})) &&
              noexcept(identity::promised::require_no_capture(cudaStream_t{})));

TEST_CASE("identity: the default streams are values, streams that were made are not") {
    support::every_schedule([] {
        support::scoped_stream const s;
        CHECK(weir::is_default_stream(cudaStream_t{}));
        CHECK(weir::is_default_stream(cudaStreamLegacy));
        CHECK(weir::is_default_stream(cudaStreamPerThread));
        CHECK_FALSE(weir::is_default_stream(s));
        CHECK(weir::is_per_thread(cudaStreamPerThread));
        CHECK_FALSE(weir::is_per_thread(cudaStreamLegacy));
        CHECK_FALSE(weir::is_per_thread(cudaStream_t{})); // as these tests are compiled
        CHECK_FALSE(weir::is_per_thread(s));
        CHECK_FALSE(weir::is_per_thread(weir::on_host));
    });
}

TEST_CASE("identity: streams that live at the same time have different keys, none of them 0") {
    support::every_schedule([] {
        support::scoped_stream const a, b, c;
        std::set<std::uint64_t> keys;
        for (weir::stream_ref s : {weir::stream_ref(a), weir::stream_ref(b), weir::stream_ref(c),
                                   weir::stream_ref(cudaStreamLegacy), weir::stream_ref(cudaStreamPerThread)}) {
            CHECK(key_of(s) != 0);
            CHECK(key_of(s) == key_of(s));
            CHECK(keys.insert(key_of(s)).second);
        }
        std::thread([&] { // another thread's own stream is another stream
            CHECK(keys.insert(key_of(cudaStreamPerThread)).second);
            CHECK(keys.count(key_of(cudaStreamLegacy)) == 1);
            CHECK(keys.count(key_of(a)) == 1);
        }).join();
        CHECK(key_of(cudaStream_t{}) == key_of(cudaStreamLegacy));
    });
}

TEST_CASE("identity: a default stream's key is odd, a handle's even, so that they cannot meet") {
    support::every_schedule([] {
        support::scoped_stream const s;
        CHECK(key_of(s) % 2 == 0);
        CHECK(key_of(cudaStreamLegacy) % 2 == 1);
        CHECK(key_of(cudaStreamPerThread) % 2 == 1);
    });
}

TEST_CASE("identity: a default stream is another one on another device") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    std::set<std::uint64_t> keys;
    for (int i = 0; i < devices; ++i) {
        weir::device_guard const guard(i);
        CHECK(keys.insert(key_of(cudaStreamLegacy)).second);
        CHECK(keys.insert(key_of(cudaStreamPerThread)).second);
    }
}

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
        CHECK(key_of(s) != 0);
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
    runs += support::fault_sweep(prepare, [](one&) { static_cast<void>(key_of(cudaStreamLegacy)); }, threw);
    runs += support::fault_sweep(prepare, [](one& x) { static_cast<void>(key_of(x.s)); }, threw); // no call
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs == 6);
#endif
    static_cast<void>(runs);
}
