// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What becomes of a block that CUDA does not take back?
//
// It is kept, with the events of the streams that use it, so that it neither leaks nor is freed too early, and is offered
// again once the devices are idle.
//
// invariant: a block is here, or CUDA has taken it back.
// order:     'offer' waits for the devices, then for the events, then frees.
// cost:      none until CUDA refuses a block.
// not for:   blocks that CUDA takes.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/mutex.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/device_guard.hpp>
#include <weir/runtime/event.hpp>

namespace weir {
inline namespace v0 {

/// A block that CUDA did not take back, and what must have run before it may.
struct refused_block {
    void* begin;
    std::size_t bytes;
    growing_array<event> uses;
};

/// Any thread may call any member.
class refused_blocks {
public:
    /// Keeps a block. Where the host has no memory for that, neither CUDA nor the host can take it, and it leaks.
    void keep(refused_block block) noexcept {
        lock_guard<mutex> const lock(mutex_);
        std::size_t const bytes = block.bytes;
        try {
            blocks_.push_back(std::move(block));
            bytes_ += bytes;
        } catch (...) { // neither CUDA nor the host can take it
        }
    }

    bool empty() const noexcept {
        lock_guard<mutex> const lock(mutex_);
        return blocks_.empty();
    }
    /// Bytes of the blocks here.
    std::size_t bytes() const noexcept {
        lock_guard<mutex> const lock(mutex_);
        return bytes_;
    }

    /// Blocks until all work on device `ordinal` (any_device: on every device) is done, and frees the blocks on `stream`;
    /// what CUDA refuses again stays. Breaks the captures that are under way on the device, as cudaDeviceSynchronize does.
    /// Throws cuda_error; then every block that CUDA has not taken is still here.
    void offer(int ordinal, cudaStream_t stream) {
        growing_array<refused_block> offered;
        {
            lock_guard<mutex> const lock(mutex_);
            offered.swap(blocks_);
            bytes_ = 0;
        }
        try {
            wait_for_all(ordinal);
            for (refused_block const& each : offered)
                for (event const& passed : each.uses)
                    passed.synchronize(); // on a stream of another device
        } catch (...) {
            for (refused_block& each : offered)
                keep(std::move(each));
            throw;
        }
        bool taken = false;
        for (refused_block& each : offered) {
            if (succeeded(cudaFreeAsync(each.begin, stream)))
                taken = true;
            else
                keep(std::move(each));
        }
        if (taken) // so that the memory is there for a trim
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }

private:
    static void wait_for_all(int ordinal) {
        int count = 1;
        if (ordinal == any_device)
            check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        for (int each = 0; each < count; ++each) {
            device_guard const guard(ordinal == any_device ? each : ordinal);
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
    }

    mutable mutex mutex_;
    growing_array<refused_block> blocks_;
    std::size_t bytes_ = 0;
};

} // namespace v0
} // namespace weir
