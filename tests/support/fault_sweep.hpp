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
// Whatever the operation, the sweep itself holds it to the house's rule: an exception names the call that
// failed, and nothing leaks but what CUDA refused to destroy. CUDA's per-thread record of errors is left
// empty.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <string>
#include <utility>
#include <vector>
#include <weir/base/error.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace support {

/// A fault and what came of it.
struct struck {
    std::vector<std::string> calls; ///< the calls that failed, in order
    bool for_ever = false;          ///< every call from the first one on failed
    bool threw = false;             ///< the operation threw cuda_error
    std::string text;               ///< what it said

    bool hit(char const* call) const {
        for (std::string const& each : calls)
            if (each == call)
                return true;
        return false;
    }
};

#ifdef WEIR_SIMULATED_CUDA
namespace detail {
// The calls that answered 'error' in a log whose lines are 'number thread call answer'.
inline std::vector<std::string> calls_that_answered(std::string const& log, std::string const& error) {
    std::vector<std::string> found;
    std::size_t begin = 0;
    while (begin < log.size()) {
        std::size_t const end = log.find('\n', begin);
        std::string const line = log.substr(begin, end - begin);
        begin = end == std::string::npos ? log.size() : end + 1;
        if (line.size() <= error.size() || line.compare(line.size() - error.size(), error.size(), error) != 0)
            continue;
        std::size_t const last = line.size() - error.size() - 1;
        std::size_t const first = line.rfind(' ', last - 1) + 1;
        found.push_back(line.substr(first, last - first));
    }
    return found;
}
} // namespace detail
#endif

/// Returns the number of runs in which a call failed. `forgive`: leaks of kinds that this operation may
/// cause.
template <class Prepare, class Attempt, class Judge>
std::uint64_t fault_sweep(Prepare&& prepare, Attempt&& attempt, Judge&& judge) {
    std::uint64_t runs = 0;
#ifdef WEIR_SIMULATED_CUDA
    for (bool for_ever : {false, true}) {
        for (std::uint64_t k = 1; k < 10000; ++k) {
            simulated_cuda::world world(simulated_cuda::config{}.late().with_log());
            struck fault;
            fault.for_ever = for_ever;
            {
                auto state = prepare();
                static_cast<void>(cudaGetLastError());
                std::size_t const logged = simulated_cuda::log().size();
                CAPTURE(k);
                CAPTURE(for_ever);
                simulated_cuda::fail_call(k, cudaErrorUnknown,
                                          for_ever ? simulated_cuda::lasting::for_ever
                                                   : simulated_cuda::lasting::once);
                try {
                    attempt(*state);
                } catch (weir::cuda_error const& error) {
                    fault.threw = true;
                    fault.text = error.what();
                    CHECK(error.code() == static_cast<int>(cudaErrorUnknown));
                }
                simulated_cuda::clear_faults();
                fault.calls =
                    detail::calls_that_answered(simulated_cuda::log().substr(logged), "cudaErrorUnknown");
                CHECK_MESSAGE(cudaPeekAtLastError() == cudaSuccess, "an error is left on CUDA's record");
                if (fault.threw) {
                    bool named = false;
                    for (std::string const& call : fault.calls)
                        named = named ||
                                fault.text.find("weir: " + call + " failed with cudaErrorUnknown (999)") == 0;
                    CHECK_MESSAGE(named, "the error does not name the call that failed: ", fault.text);
                }
                std::string const call = fault.calls.empty() ? "none" : fault.calls.front();
                CAPTURE(call);
                judge(*state, static_cast<struck const&>(fault));
            }
            for (simulated_cuda::report const& each : world.finish()) {
                bool const refused =
                    each.kind == simulated_cuda::finding::leak &&
                    ((fault.hit("cudaEventDestroy") && each.sentence.find("event") == 0) ||
                     (fault.hit("cudaStreamDestroy") && each.sentence.find("stream") == 0) ||
                     (fault.hit("cudaMemPoolDestroy") && each.sentence.find("a memory pool") == 0) ||
                     (for_ever && fault.hit("cuMemRelease") && each.sentence.find("cuMemCreate's handle") == 0) ||
                     (fault.hit("cuMemAddressFree") && each.sentence.find("are still reserved") != std::string::npos) ||
                     // what upstream::managed could not advise, where freeing never works
                     (for_ever && fault.hit("cudaFree") && each.sentence.find("cudaMallocManaged") != std::string::npos) ||
                     // what wait_for_device frees, where freeing never works
                     (for_ever && fault.hit("cudaFree") && each.sentence.find(" 1 bytes of cudaMalloc") != std::string::npos));
                CHECK_MESSAGE(refused, each.sentence, " (",
                              fault.calls.empty() ? "no call" : fault.calls.front(),
                              for_ever ? " failed for ever, k = " : " failed once, k = ", k, ")");
            }
            if (fault.calls.empty())
                break;
            ++runs;
        }
    }
#else
    static_cast<void>(prepare), static_cast<void>(attempt), static_cast<void>(judge);
#endif
    return runs;
}

} // namespace support
