// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a copy to ordinary host memory end?
//
// The stream copies into slots of a ring, and somebody has to copy out of them afterwards. 'pending_copy' stands for what is
// left to do. 'wait' does it. Until then the slots are in use, so other threads that need a slot may do a part of it.
//
// invariant: after 'wait' has returned, and after the end of this object, the host writes the target no more.
// order:     of the caller's stream: what was enqueued before the copy has run when 'wait' returns.
// cost:      'wait': the wait for the device, and the host's copying.
// not for:   copies to the device: those leave nothing to do.

#include <cstdint>
#include <utility>
#include <weir/base/swap.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/staging/copy_threads.hpp>
#include <weir/staging/pinned_ring.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// A copy to the host that is under way, or none. Movable, not copyable. One thread at a time, which need not be the one that
/// began the copy. The target, and the list of pieces of a batch, stay until 'wait' has returned or the object has ended.
/// Nobody touches the target before.
class [[nodiscard]] pending_copy {
public:
    /// Nothing is under way.
    pending_copy() noexcept = default;
    pending_copy(pending_copy&& other) noexcept
        : ring_(std::exchange(other.ring_, nullptr)), threads_(other.threads_), copy_(other.copy_) {}
    /// Ends the copy that it stood for, as the destructor does.
    pending_copy& operator=(pending_copy&& other) noexcept {
        pending_copy taken(std::move(other));
        base::swap_values(ring_, taken.ring_);
        base::swap_values(threads_, taken.threads_);
        base::swap_values(copy_, taken.copy_);
        return *this;
    }
    /// Does what 'wait' would, and blocks as long. If that fails, nobody hears of it, and the rest of the target stays as it
    /// is: call 'wait' to be told.
    ~pending_copy() {
        if (!base::try_twice([this] { return wait(), true; }))
            ring_->slots().forget(copy_);
    }

    /// Whether there may be something left to wait for.
    explicit operator bool() const noexcept { return ring_ != nullptr; }

    /// Blocks until the target holds all bytes. Throws cuda_error if CUDA cannot say that a part has arrived; call it again, or
    /// let the object go. Throws usage_error in a function that converts for a copy through the same ring. Breaks no capture.
    void wait() {
        if (!ring_)
            return;
        ring_->slots().require_no_user();
        runtime::device_scope const here(ring_->device());
        runtime::capture_mode_scope const relaxed;
        while (ring_->slots().finish_some(copy_, threads_)) {
        }
        ring_ = nullptr;
    }

    // For staging's own functions.
    pending_copy(pinned_ring& ring, copy_threads* threads) noexcept
        : ring_(&ring), threads_(threads), copy_(ring.slots().new_copy()) {}
    std::uint64_t number() const noexcept { return copy_; }

private:
    pinned_ring* ring_ = nullptr;
    copy_threads* threads_ = nullptr; // who help
    std::uint64_t copy_ = 0;
};

} // namespace staging
} // namespace v0
} // namespace weir
