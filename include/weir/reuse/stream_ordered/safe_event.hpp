// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Up to which event may bytes be in use?
//
// Bytes that a stream freed are in use until it has passed an event that was recorded later. One event stands for many of them,
// and is recorded anew for more. Copies share the event.
//
// order:     as event's.
// cost:      an event each; asks CUDA until it was reached, then no more.
// not for:   which bytes those are: stream_set.hpp.

#include <weir/base/shared.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// One thread at a time.
class safe_event {
public:
    /// From now on of streams of device number `device`: what was covered is in no use.
    void start_anew(int device) noexcept {
        if (device != device_)
            passed_ = base::shared<runtime::event>();
        device_ = device;
        reached_ = true;
    }
    int device() const noexcept { return device_; }

    /// Covers all that `stream` did so far. Throws cuda_error, std::bad_alloc; then it covers what it did.
    void record(stream_ref stream) {
        if (!passed_)
            passed_ = base::shared<runtime::event>::make(device_);
        passed_->record(stream);
        reached_ = false;
    }
    /// The same; false where it cannot.
    bool try_record(stream_ref stream) noexcept {
        try {
            return record(stream), true;
        } catch (...) {
            return false;
        }
    }

    /// Covers nothing, while a copy of it covers what it did. Takes the event of `spare`, which covers nothing either, if it
    /// can.
    void release(safe_event const& spare) noexcept {
        passed_ = spare.device_ == device_ && spare.passed_ != passed_ ? spare.passed_ : base::shared<runtime::event>();
        reached_ = true;
    }

    /// Whether what is covered is in no use. Never blocks. Throws cuda_error.
    bool reached() { return reached_ = reached_ || passed_->reached(); }
    /// Whether that is known: asks nobody.
    bool was_reached() const noexcept { return reached_; }
    void settle() noexcept { reached_ = true; } ///< the caller knows

    /// The event; null until the first 'record'. Shared, so that one can wait for it without a lock.
    base::shared<runtime::event> const& passed() const noexcept { return passed_; }

private:
    base::shared<runtime::event> passed_;
    bool reached_ = true; // or nothing is covered yet
    int device_ = any_device;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
