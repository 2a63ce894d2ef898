// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The keys of default streams: each thread's own, each device's, and none that meets a created stream's handle.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <set>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <thread>
#include <weir/base/error.hpp>
#include <weir/reuse/stream_ordered/default_streams.hpp>
#include <weir/runtime/devices.hpp>

using weir::reuse::detail::is_default_key;
using weir::reuse::detail::key_of_default;

TEST_CASE("default_streams: a name has one key a thread, which is no handle's, and a later thread's own is another") {
    support::every_schedule([] {
        support::scoped_stream const s;
        CHECK_FALSE(is_default_key(reinterpret_cast<std::uintptr_t>(static_cast<cudaStream_t>(s))));
        std::uint64_t const legacy = key_of_default(cudaStreamLegacy);
        std::set<std::uint64_t> keys{0, legacy};
        for (int i = 0; i < 5; ++i) // one after another: the system hands the name of a thread that ended out again
            std::thread([&] {
                CHECK(key_of_default(cudaStreamLegacy) == legacy);
                std::uint64_t const own = key_of_default(cudaStreamPerThread);
                CHECK(is_default_key(own));
                CHECK(keys.insert(own).second);
                CHECK(key_of_default(cudaStreamPerThread) == own);
            }).join();
        CHECK(keys.insert(key_of_default(cudaStreamPerThread)).second);
        CHECK(is_default_key(legacy));
    });
}

TEST_CASE("default_streams: a name means another stream on another device, and the same one when that is current again") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int devices = 0;
    weir::check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    std::set<std::uint64_t> keys;
    for (int round = 0; round < 2; ++round)
        for (int i = 0; i < devices; ++i) {
            weir::runtime::device_scope const there(i);
            CHECK(keys.insert(key_of_default(cudaStreamLegacy)).second == (round == 0));
            CHECK(keys.insert(key_of_default(cudaStreamPerThread)).second == (round == 0));
        }
}

TEST_CASE("default_streams: asking breaks no capture, and a captured stream whose id is not known yet is refused") {
    support::every_schedule([] {
        support::scoped_stream const s;
        support::capture elsewhere(s);
        static_cast<void>(key_of_default(cudaStreamLegacy));
        CHECK(elsewhere.unbroken());
        std::thread([] { // it has not asked for its stream's id
            support::capture own(cudaStreamPerThread);
            CHECK_THROWS_AS(static_cast<void>(key_of_default(cudaStreamPerThread)), weir::usage_error);
            CHECK(own.unbroken());
        }).join();
    });
}

TEST_CASE("default_streams: every call may fail, and names itself") {
    struct nothing {};
    auto const prepare = [] { return std::make_unique<nothing>(); };
    auto const threw = [](nothing&, support::struck const& fault) { CHECK(fault.threw == !fault.calls.empty()); };
    [[maybe_unused]] std::size_t runs = 0;
    for (cudaStream_t const each : {cudaStreamLegacy, cudaStreamPerThread})
        runs += support::fault_sweep(prepare, [each](nothing&) { static_cast<void>(key_of_default(each)); }, threw);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs != 0);
#endif
}
