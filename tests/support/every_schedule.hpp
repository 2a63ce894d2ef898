// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Runs a test's body once on a GPU, and on the simulated device once under each of several schedules: eager,
// as late as legal, and random ones. What the simulated device finds wrong fails the test.
//
// 'each_fault' runs a scenario again and again on the simulated device, and each time makes the next CUDA
// call fail, once or for ever, until a run makes fewer calls than that. On a GPU it does nothing.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <utility>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/stream.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace support {

/// A stream for the life of a scope. Converts to cudaStream_t. Does not wait for other streams, nor they for
/// it.
class scoped_stream {
public:
    scoped_stream() {
        weir::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    scoped_stream(scoped_stream const&) = delete;
    scoped_stream& operator=(scoped_stream const&) = delete;
    ~scoped_stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
    operator cudaStream_t() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

#ifdef WEIR_SIMULATED_CUDA
inline void report_all(std::vector<simulated_cuda::report> const& reports) {
    for (simulated_cuda::report const& each : reports)
        FAIL_CHECK(each.sentence);
}

// Where cudaEventDestroy is among the calls that fail, an event is left; no caller could help that.
inline void report_all_but_events(std::vector<simulated_cuda::report> const& reports) {
    for (simulated_cuda::report const& each : reports)
        if (each.kind != simulated_cuda::finding::leak || each.sentence.find("event") != 0)
            FAIL_CHECK(each.sentence);
}
#endif

/// Whether the simulated device lets the host touch device memory, as Thrust's backend for C++ must.
enum class device_memory { hidden, visible };

template <class Body>
void every_schedule(Body&& body, device_memory seen = device_memory::hidden) {
#ifdef WEIR_SIMULATED_CUDA
    using simulated_cuda::config;
    for (config each : {config{}.eager(), config{}.late(), config{}.random(1), config{}.random(2),
                        config{}.random(3), config{}.random(4)}) {
        each.device_memory_visible = seen == device_memory::visible;
        simulated_cuda::world const world(each, report_all);
        CAPTURE(static_cast<int>(each.mode));
        CAPTURE(each.seed);
        body();
    }
#else
    static_cast<void>(seen);
    body();
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
#endif
}

/// `prepare()` makes a state; `attempt(state)` is the operation of which each CUDA call fails in turn;
/// `judge(state, failed)` looks at the state afterwards, when no call fails any more. `failed`: the operation
/// threw cuda_error. Returns the CUDA calls of the operation that were broken.
template <class Prepare, class Attempt, class Judge>
std::uint64_t each_fault(Prepare&& prepare, Attempt&& attempt, Judge&& judge) {
    std::uint64_t calls = 0;
#ifdef WEIR_SIMULATED_CUDA
    for (auto const how : {simulated_cuda::lasting::once, simulated_cuda::lasting::for_ever}) {
        for (std::uint64_t k = 1;; ++k) {
            simulated_cuda::world const world(simulated_cuda::config{}.late(), report_all_but_events);
            auto state = prepare();
            CAPTURE(k);
            CAPTURE(static_cast<int>(how));
            bool failed = false;
            std::uint64_t const before = simulated_cuda::failed_calls();
            simulated_cuda::fail_call(k, cudaErrorUnknown, how);
            try {
                attempt(*state);
            } catch (weir::cuda_error const& error) {
                CHECK(error.code() == static_cast<int>(cudaErrorUnknown));
                failed = true;
            }
            bool const broken = simulated_cuda::failed_calls() != before;
            simulated_cuda::clear_faults();
            judge(*state, failed);
            if (!broken)
                break;
            ++calls;
        }
    }
#else
    static_cast<void>(prepare), static_cast<void>(attempt), static_cast<void>(judge);
#endif
    return calls;
}

} // namespace support
