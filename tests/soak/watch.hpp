// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who sees that a block's bytes are another's, while work on them is still under way?
//
// Kernels: one writes a tag into every word of a block, another looks whether all words still bear it and counts those that
// do not. Both first spin for a while, so that dozens are under way and what comes too early shows. On the simulated device
// the same two are work of its own, which runs when its schedule says.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace soak {

class watch {
public:
    /// Counts on the current device.
    watch();
    watch(watch const&) = delete;
    watch& operator=(watch const&) = delete;
    ~watch();

    /// Enqueues on `stream`: spin for so many cycles, then write `tag` to the `bytes` bytes at `p`, in words of 4.
    void fill(cudaStream_t stream, void* p, std::size_t bytes, std::uint32_t tag, unsigned cycles);

    /// Enqueues on `stream`: spin for so many cycles, then count the words that are not `tag`.
    void check(cudaStream_t stream, void const* p, std::size_t bytes, std::uint32_t tag, unsigned cycles);

    /// Words so far that were not what had been written. Waits for the device.
    unsigned long long wrong_words() const;

private:
    [[maybe_unused]] unsigned long long* wrong_ = nullptr; // of the device; nothing counts on the simulated one
};

} // namespace soak
