// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Fails each CUDA call of an operation in turn, once and for ever, on the simulated device, and tells the
// test which call it was. On a GPU it does nothing, and answers 0.
//
//     fault_sweep([] { return std::make_unique<state>(); },                 // a state in a fresh world
//                 [](state& s) { s.pool.trim(); },                         // the operation
//                 [](state& s, struck const& fault) { ... });              // afterwards, when no call fails
//                 any more
//
// Where an operation undoes what it did before a call failed, the undo's own calls may fail: with 'faults::pairs_too' two
// calls fail, each once, the second not far behind the first.
//
// Whatever the operation, the sweep itself holds it to the house's rule: an exception names the call that
// failed, and nothing leaks but what CUDA refused to destroy. CUDA's per-thread record of errors is left
// empty.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <string>
#include <support/sanitized.hpp>
#include <utility>
#include <vector>
#include <weir/base/error.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#include <support/broken_calls.hpp>
#endif

namespace support {

/// A fault and what came of it.
struct struck {
    int devices = 1;                ///< of the world
    std::vector<std::string> calls; ///< the calls that failed, in order
    bool for_ever = false;          ///< every call from the first one on failed
    bool pair = false;              ///< two were to fail, though the second may not have been made
    bool threw = false;             ///< the operation threw cuda_error
    std::string text;               ///< what it said

    bool hit(char const* call) const {
        for (std::string const& each : calls)
            if (each == call)
                return true;
        return false;
    }
    /// Whether it failed again where it was tried once more, so that what it was to end may be left.
    bool hit_twice(char const* call) const {
        int times = 0;
        for (std::string const& each : calls)
            times += each == call;
        return times > 1 || (for_ever && times != 0);
    }
};

/// Which faults a sweep tries.
enum class faults { single, pairs_too };

#ifdef WEIR_SIMULATED_CUDA
namespace detail {

// One run: `fault` says how, call `first` fails, and call `second` where it is a pair. Returns how many failed.
template <class Prepare, class Attempt, class Judge>
std::size_t strike(Prepare& prepare, Attempt& attempt, Judge& judge, struck fault, std::uint64_t first, std::uint64_t second) {
    simulated_cuda::world world(simulated_cuda::config{}.late().with_log().with_devices(fault.devices));
    broken_calls broken;
    {
        auto state = prepare();
        static_cast<void>(cudaGetLastError());
        std::size_t const logged = simulated_cuda::log().size();
        CAPTURE(first);
        CAPTURE(second);
        CAPTURE(fault.for_ever);
        simulated_cuda::fail_call(first, cudaErrorUnknown,
                                  fault.for_ever ? simulated_cuda::lasting::for_ever : simulated_cuda::lasting::once);
        if (fault.pair)
            simulated_cuda::fail_call(second, cudaErrorUnknown);
        try {
            attempt(*state);
        } catch (weir::cuda_error const& error) {
            fault.threw = true;
            fault.text = error.what();
            CHECK(error.code() == static_cast<int>(cudaErrorUnknown));
        }
        simulated_cuda::clear_faults();
        broken = broken_calls(cudaErrorUnknown, logged, fault.for_ever);
        fault.calls = broken.names();
        CHECK_MESSAGE(cudaPeekAtLastError() == cudaSuccess, "an error is left on CUDA's record");
        if (fault.threw) {
            bool named = false;
            for (std::string const& call : fault.calls)
                named = named || fault.text.find("weir: " + call + " failed with cudaErrorUnknown (999)") == 0;
            CHECK_MESSAGE(named, "the error does not name the call that failed: ", fault.text);
        }
        std::string const call = fault.calls.empty() ? "none" : fault.calls.front();
        std::string const last = fault.calls.empty() ? "none" : fault.calls.back();
        CAPTURE(call);
        CAPTURE(last);
        judge(*state, static_cast<struck const&>(fault));
    }
    for (simulated_cuda::report const& each : world.finish()) {
        CHECK_MESSAGE(broken.explain(each), each.sentence, " (", fault.calls.empty() ? "no call" : fault.calls.front(),
                      fault.for_ever ? " failed for ever" : fault.pair ? " and another failed" : " failed once", ", k = ",
                      std::to_string(first) + (fault.pair ? " and " + std::to_string(second) : ""), ")");
    }
    return fault.calls.size();
}

} // namespace detail
#endif

/// Returns the number of runs in which a call failed.
template <class Prepare, class Attempt, class Judge>
std::uint64_t fault_sweep(Prepare&& prepare, Attempt&& attempt, Judge&& judge, faults which = faults::single,
                          int devices = 1) {
    std::uint64_t runs = 0;
#ifdef WEIR_SIMULATED_CUDA
    struck once, for_ever, pair;
    once.devices = for_ever.devices = pair.devices = devices;
    for_ever.for_ever = true;
    pair.pair = true;
    for (struck const* how : {&once, &for_ever})
        for (std::uint64_t k = 1; k < 10000 && detail::strike(prepare, attempt, judge, *how, k, 0) != 0; ++k)
            ++runs;
    constexpr std::uint64_t reach = sanitized ? 2 : 4; // an undo follows at once
    std::size_t failed = which == faults::pairs_too;
    for (std::uint64_t first = 1; failed != 0 && first < 10000; ++first)
        for (std::uint64_t second = first + 1; second <= first + reach; ++second) {
            failed = detail::strike(prepare, attempt, judge, pair, first, second);
            if (failed < 2) // there was no second call to fail
                break;
            ++runs;
        }
#else
    static_cast<void>(prepare), static_cast<void>(attempt), static_cast<void>(judge), static_cast<void>(which), static_cast<void>(devices);
#endif
    return runs;
}

} // namespace support
