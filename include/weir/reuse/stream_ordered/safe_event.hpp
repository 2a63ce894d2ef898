// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Up to which event may bytes be in use?
//
// Bytes that a stream freed may be in use until the stream has passed an event that was recorded after the free. One such
// event stands for many bytes; they are the bytes that it covers. To cover more, the event is recorded again. Copies share
// the event.
//
// order:     as runtime::event.
// cost:      one event each. CUDA is asked until the event was reached, and not any more then.
// not for:   knowing which bytes those are: see stream_set.hpp.

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
    /// From this call on the event is for a stream of device number `device`. The caller says that nothing covered is in use.
    void start_anew(int device) noexcept {
        if (device != device_)
            passed_ = base::shared<runtime::event>();
        device_ = device;
        reached_ = true;
    }
    int device() const noexcept { return device_; }

    /// Covers all that `stream` did so far. Throws cuda_error, std::bad_alloc; it then covers what it covered before.
    void record(stream_ref stream) {
        if (!passed_)
            passed_ = base::shared<runtime::event>::make(device_);
        passed_->record(stream);
        reached_ = false;
    }
    /// The same; false in place of an exception.
    bool try_record(stream_ref stream) noexcept {
        try {
            return record(stream), true;
        } catch (...) {
            return false;
        }
    }

    /// Covers nothing from then on, while a copy that shares the event covers what this did. For the next record it takes the
    /// event of `spare`, which covers nothing either; if that is of another device or the same event, it will make a new one.
    void release(safe_event const& spare) noexcept {
        passed_ = spare.device_ == device_ && spare.passed_ != passed_ ? spare.passed_ : base::shared<runtime::event>();
        reached_ = true;
    }

    /// Whether no work uses what is covered. Never blocks. Throws cuda_error.
    bool reached() { return reached_ = reached_ || passed_->reached(); }
    /// Whether that is known already, without a question to CUDA.
    bool was_reached() const noexcept { return reached_; }
    void note_reached() noexcept { reached_ = true; } ///< The caller knows that no work uses what is covered.

    /// The event; null until the first 'record'. It is shared, so that one can wait for it without holding a lock.
    base::shared<runtime::event> const& passed() const noexcept { return passed_; }

private:
    base::shared<runtime::event> passed_;
    bool reached_ = true; // true also while nothing is covered yet
    int device_ = any_device;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
