// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which CUDA calls did the simulated device make fail, and which leaks do they explain?

#include <algorithm>
#include <cstddef>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <vector>

namespace support {

/// The calls that a fault made fail, by its log, whose lines are 'number thread call answer'.
class broken_calls {
public:
    broken_calls() = default;
    /// Those that answered `error` since the log was `logged` characters long; `for_ever`: every call from the first on failed.
    explicit broken_calls(cudaError_t error, std::size_t logged = 0, bool for_ever = false) : for_ever_(for_ever) {
        std::string const log = simulated_cuda::log().substr(logged);
        std::string const ending = std::string(" ") + cudaGetErrorName(error) + "\n";
        for (std::size_t at = log.find(ending); at != std::string::npos; at = log.find(ending, at + 1)) {
            std::size_t const begin = log.rfind(' ', at - 1) + 1;
            names_.push_back(log.substr(begin, at - begin));
        }
    }

    std::vector<std::string> const& names() const { return names_; }
    bool have(std::string const& name) const { return std::count(names_.begin(), names_.end(), name) != 0; }
    /// Whether it failed again where it was tried once more, so that what it was to end may be left.
    bool have_twice(std::string const& name) const {
        return std::count(names_.begin(), names_.end(), name) > 1 || (for_ever_ && have(name));
    }
    /// Their names, for a message.
    std::string text() const {
        std::string all;
        for (std::string const& each : names_)
            all += (all.empty() ? "" : ", ") + each;
        return all.substr(0, 200);
    }
    /// Whether CUDA said that there is no memory where memory was asked for.
    bool have_no_room() const {
        for (char const* const asks : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve", "cudaMalloc",
                                       "cudaHostAlloc", "cudaHostRegister", "cudaMallocManaged", "cudaMallocFromPoolAsync"})
            if (have(asks))
                return true;
        return false;
    }
    /// Whether this leak is of something that CUDA refused to destroy.
    bool explain(simulated_cuda::report const& leak) const {
        if (leak.kind != simulated_cuda::finding::leak)
            return false;
        auto const begins = [&](char const* text) { return leak.sentence.find(text) == 0; };
        auto const says = [&](char const* text) { return leak.sentence.find(text) != std::string::npos; };
        return (have("cudaEventDestroy") && begins("event")) || (have("cudaStreamDestroy") && begins("stream")) ||
               (have("cudaMemPoolDestroy") && begins("a memory pool")) ||
               (have("cuMemAddressFree") && says("are still reserved")) ||
               (have_twice("cuMemRelease") && begins("cuMemCreate's handle")) ||
               (have_twice("cudaUserObjectRelease") && begins("a user object was never released")) ||
               // what upstream::managed could not advise, and the byte by whose freeing a pool waits for the device
               (have_twice("cudaFree") && (says("cudaMallocManaged") || says(" 1 bytes of cudaMalloc")));
    }

private:
    std::vector<std::string> names_;
    bool for_ever_ = false;
};

} // namespace support
