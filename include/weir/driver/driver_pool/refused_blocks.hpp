// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What becomes of a block that CUDA does not take back?
//
// It is kept, with the events of the streams that use it, so that it neither leaks nor is freed too early. Once the devices are
// idle, it is offered to CUDA again. Blocks that were freed wrongly may be among those kept: a captured stream refuses in the
// same way what is not its graph's and what is nobody's. So when CUDA hands an address out again, what was kept there is
// forgotten. And when CUDA does not know a block that is offered, whoever offers is told.
//
// invariant: a block is here, or CUDA has taken it back, or CUDA does not know it, or the host had no memory to note it. One
//            exception: if a thread frees a block wrongly while CUDA hands its address to another thread, the new block may be
//            kept here in its place.
// order:     'offer' waits for the devices, then for the events, then frees.
// cost:      none until CUDA refuses a block; one relaxed load for 'has' and 'forget'.
// not for:   blocks that CUDA takes.

#include <cstddef>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace driver::detail {

/// A block that CUDA did not take back, and what must have run before it may.
struct refused_block {
    void* begin;
    std::size_t bytes;
    base::growing_array<runtime::event> uses;
};

/// Says on stderr that `p` was freed wrongly. `is_here`: it is in a list of the pool's refused blocks.
inline void tell_wrong_free(char const* pool, void const* p, bool is_here) noexcept {
    // One call, so that the lines of several threads do not mix.
    std::fprintf(stderr, "weir: pool '%s': the block at %p is freed already%s\n", pool, p,
                 is_here ? "; free each block once"
                         : " or was not handed out by this pool; free each block once, where it was allocated");
}


// Calls cudaFreeAsync, but returns cudaErrorInvalidValue only if CUDA does not know the block. A captured stream answers so to
// every block of no graph, so its answer is replaced. Elsewhere CUDA is asked twice: the first answer may be an error of
// earlier work.
inline cudaError_t free_or_unknown(void* begin, cudaStream_t stream) noexcept {
    cudaError_t const answer = runtime::detail::free_async(begin, stream);
    if (answer != cudaErrorInvalidValue)
        return answer;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    bool const captured =
        runtime::detail::query_capture(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
    return captured ? cudaErrorStreamCaptureUnsupported : runtime::detail::free_async(begin, stream);
}


/// Any thread may call any member.
class refused_blocks {
public:
    /// Keeps a block. If the host has no memory for that, the block leaks: CUDA cannot take it, and it cannot be noted.
    void keep(refused_block block) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        add(std::move(block));
    }

    bool empty() const noexcept { return count_.load(base::memory_order_relaxed) == 0; }
    /// Bytes of the blocks here.
    std::size_t bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return bytes_;
    }
    /// Whether the block that begins at `begin` is here.
    bool has(void const* begin) const noexcept {
        if (empty())
            return false;
        base::lock_guard<base::mutex> const lock(mutex_);
        for (base::growing_array<refused_block> const* each : {&blocks_, &offered_})
            for (refused_block const& block : *each)
                if (block.begin == begin)
                    return true;
        return false;
    }
    /// Notes that CUDA has handed out `begin`: what was kept at that address must not be freed any more.
    void forget(void const* begin) noexcept {
        if (empty())
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        drop(begin);
    }
    /// The same for the address that `hand_out()` gets from CUDA and returns. No address is offered to CUDA in between.
    template <class HandOut>
    void forget_new(HandOut&& hand_out) noexcept {
        if (empty())
            return forget(hand_out());
        base::lock_guard<base::mutex> const lock(mutex_);
        drop(hand_out());
    }

    /// Blocks until all work on device number `device` (any_device: on every device) is done, and frees the blocks on `stream`.
    /// What CUDA refuses again stays. What CUDA does not know goes, and `unknown(begin)`, which must not throw, is told of it.
    /// Breaks the captures that are under way on the device, as cudaDeviceSynchronize does, unless `gently`: then CUDA's pools
    /// do not notice the wait. Throws cuda_error; then every block that CUDA has not taken is still here, but for those that
    /// the host has no memory to note again.
    template <class Unknown>
    void offer(int device, cudaStream_t stream, Unknown&& unknown, bool gently = false) {
        base::lock_guard<base::mutex> const alone(offers_);
        runtime::capture_mode_scope const relaxed; // so that captures on other devices do not break
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            offered_.swap(blocks_);
        }
        try {
            if (gently)
                runtime::wait_for_device(device);
            else
                wait_for_all(device);
            for (refused_block const& each : offered_)
                for (runtime::event const& passed : each.uses)
                    passed.synchronize(); // on a stream of another device
        } catch (...) {
            end_offer([](refused_block const&) { return false; });
            throw;
        }
        bool taken = false;
        end_offer([&](refused_block const& each) {
            cudaError_t const error = free_or_unknown(each.begin, stream);
            if (error == cudaSuccess)
                taken = true;
            else if (error == cudaErrorInvalidValue)
                unknown(each.begin);
            else
                return false;
            return true;
        });
        if (taken) // so that the memory is there for a trim
            check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }

private:
    // The members below are called with the lock held.
    void add(refused_block block) noexcept {
        std::size_t const bytes = block.bytes;
        try {
            blocks_.push_back(std::move(block));
            bytes_ += bytes;
            count_.fetch_add(1, base::memory_order_relaxed);
        } catch (...) { // the host has no memory to note it: it leaks
        }
    }
    void drop(void const* begin) noexcept {
        for (base::growing_array<refused_block>* each : {&blocks_, &offered_})
            for (refused_block& block : *each)
                if (block.begin == begin && begin) {
                    remove(block);
                    block.begin = nullptr; // the entry stays in its list, which 'offer' may be reading
                }
    }
    void remove(refused_block const& gone) noexcept {
        bytes_ -= gone.bytes;
        count_.fetch_sub(1, base::memory_order_relaxed);
    }

    // Keeps the offered blocks for which `is_gone` says no. It is called with the lock held, so that none is forgotten
    // meanwhile.
    template <class IsGone>
    void end_offer(IsGone&& is_gone) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        for (refused_block& each : offered_) {
            if (!each.begin)
                continue;
            bool const gone = is_gone(each); // still counted, so that 'forget_new' takes the lock
            remove(each);
            if (!gone)
                add(std::move(each));
        }
        offered_.clear();
    }

    // This wait, and not 'wait_for_device', since CUDA's pools notice it: otherwise a trim behind it would find nothing.
    static void wait_for_all(int device) {
        runtime::visit_devices(device, [] { check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); });
    }

    base::mutex offers_; // one offer at a time
    mutable base::mutex mutex_;
    base::growing_array<refused_block> blocks_;
    base::growing_array<refused_block> offered_; // what 'offer' waits for
    std::size_t bytes_ = 0;
    base::atomic<std::size_t> count_{0}; // in both lists, but for what was forgotten
};

} // namespace driver::detail
} // namespace v0
} // namespace weir
